// The training that faults are injected into: its processes, and which of them are started again.
//
// Usually it is a real `muster train --workers N`, which knows nothing of the faults. With faults
// that kill the coordinator it is a `muster coordinator`, and workers that we start, and start
// again, ourselves: `muster train` holds its coordinator in the process that starts the workers.
//
// Used by one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"

#include "tools/muster-launch/verify/children.h"
#include "tools/muster-launch/verify/plan.h"

namespace muster::cli {

class Training {
 public:
  virtual ~Training() = default;
  virtual Status start(const launch::Streams& streams) = 0;
  // Starts again what has ended and should run. The exit code, once the training is over.
  virtual std::optional<int> look() = 0;
  // The process that holds the coordinator; 0: there is none now.
  virtual pid_t coordinator() const = 0;
  // Kills the coordinator; another one is started at the same address `seconds` later. False: there
  // is none now, or it cannot be replaced.
  virtual bool restart_coordinator(double seconds) = 0;
  // Whether this worker is a child of ours: no launcher kills it when it hangs, so we have to.
  virtual bool is_child(pid_t worker) const = 0;
};

// All must outlive it.
std::unique_ptr<Training> make_training(const DisturbPlan& plan, Children& children,
                                        FileSystem& files, const Clock& clock);

// The words for a worker of a training that is under way. `site`: empty: none.
std::vector<std::string> worker_words(const DisturbPlan& plan, const std::string& coordinator,
                                      const std::string& id, const std::string& site = "");
// Where the coordinator of this run listens; empty: not known yet.
std::string coordinator_address(const std::string& run);

}  // namespace muster::cli
