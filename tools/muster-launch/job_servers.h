// The parameter servers of a job (docs/servers.md), on the launcher's machine: their registry, and
// one process for each, started again when it ends.
//
// Used by the supervisor's thread: look() is called when a child has ended.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "muster/base/boot_clock.h"
#include "muster/base/log.h"
#include "muster/config/job.h"
#include "muster/launch/local_starter.h"
#include "muster/launch/process.h"
#include "muster/launch/restarts.h"
#include "muster/ps/net/registry_service.h"
#include "muster/track/run_directory.h"

namespace muster::cli {

class JobServers {
 public:
  // Null if the job has none. `host`: where others reach this machine. The others must outlive it.
  static Result<std::unique_ptr<JobServers>> start(const config::Job& job,
                                                   const track::RunDirectory& run,
                                                   const std::string& host,
                                                   const launch::HeldSignals& held, Log& log);
  // Ends them.
  ~JobServers();

  // Of the registry.
  const std::string& address() const { return registry_->address(); }
  // Sees who has ended, and starts again who is due. When it wants to be called again.
  std::optional<Moment> look(Moment now);

 private:
  struct Slot {
    std::unique_ptr<launch::Process> process;  // null: it has ended
    launch::SlotHistory history;
    std::optional<Moment> start_at;  // of one that has ended; nothing: never
    launch::Verdict verdict;
  };
  JobServers(const config::Job& job, Log& log);
  Status begin(const config::Job& job, const std::string& logs, const std::string& host,
               const launch::HeldSignals& held);
  void see_end(const std::string& id, Slot& slot, Moment now);
  Status start_slot(const std::string& id, Slot& slot, Moment now);

  Log& log_;
  launch::RestartOptions restarts_;
  const BootClock clock_;
  std::unique_ptr<ps::RegistryService> registry_;
  std::unique_ptr<launch::LocalStarter> starter_;
  std::string disk_;  // where they keep rows, or empty
  std::map<std::string, Slot> slots_;
};

}  // namespace muster::cli
