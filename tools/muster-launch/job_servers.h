// The parameter servers of a job (docs/servers.md): their registry, on the launcher's machine, and
// one process for each, here or on the hosts of --hosts, started again when it ends.
//
// One that would end in the same way each time (launch/restarts.h) is not started again: it ends
// the job with its error. One that is given up (its program is missing, or it has ended too often)
// ends the job too, unless other servers are ready, which have a copy of every shard.
//
// Used by the supervisor's thread: look() is called when a child has ended.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/boot_clock.h"
#include "muster/base/log.h"
#include "muster/config/job.h"
#include "muster/launch/hosts.h"
#include "muster/launch/process.h"
#include "muster/launch/restarts.h"
#include "muster/launch/starter.h"
#include "muster/launch/supervisor.h"
#include "muster/ps/net/registry_service.h"
#include "muster/track/run_directory.h"

#include "tools/muster-launch/slots.h"

namespace muster::cli {

// The job as several workers train it: its tables are on servers. If it does not say how many,
// there are as many as the hosts say, or two.
config::Job with_servers(config::Job job, const std::vector<launch::Host>& hosts);

// Is told what happens to servers, a sentence each. From several threads.
using TellServers = std::function<void(const std::string& what)>;

struct ServerNews {
  TellServers event;    // all that happens
  TellServers warning;  // what the user should know; from the thread that calls look()
};

// The registry of a job with servers. `host`: where others reach this machine. `clock` and
// `log` must outlive it.
Result<std::unique_ptr<ps::RegistryService>> start_registry(const config::Job& job,
                                                            const std::string& host,
                                                            const Clock& clock, Log& log,
                                                            TellServers tell);

class JobServers {
 public:
  // Null if the job has none. `slots`: where workers are; servers are on the same hosts. `held` and
  // `log` must outlive it.
  static Result<std::unique_ptr<JobServers>> start(const config::Job& job,
                                                   const track::RunDirectory& run,
                                                   const Slots& slots,
                                                   const launch::HeldSignals& held, Log& log,
                                                   ServerNews news);
  // Ends them.
  ~JobServers();

  // Of the registry.
  const std::string& address() const { return registry_->address(); }
  // Sees who has ended, and starts again who is due. When it wants to be called again.
  std::optional<Moment> look(Moment now);
  // To all of them that are there.
  void send(int number);
  // The first failure that ends the job, once.
  std::optional<launch::WorkerFailure> take_failure() { return std::exchange(failure_, {}); }

 private:
  struct Slot {
    std::unique_ptr<launch::Process> process;  // null: it has ended
    launch::SlotHistory history;
    std::optional<Moment> start_at;  // of one that has ended; nothing: never
    launch::Verdict verdict;
  };
  JobServers(const config::Job& job, Log& log, ServerNews news);
  Status begin(const config::Job& job, const std::string& logs, const Slots& slots,
               const launch::HeldSignals& held);
  Status make_starter(const config::Job& job, const std::string& logs, const Slots& slots,
                      const launch::HeldSignals& held);
  void see_end(const std::string& id, Slot& slot, Moment now);
  void lose(const std::string& id, const Slot& slot, const launch::Ending& ending, Moment now);
  bool others_are_ready(const std::string& id) const;
  Status start_slot(const std::string& id, Slot& slot, Moment now);
  // When to be called again; nothing: there is nobody to keep alive.
  std::optional<Moment> keep_alive(Moment now);

  Log& log_;
  const ServerNews news_;
  const int64_t copies_;
  launch::RestartOptions restarts_;
  const BootClock clock_;
  std::unique_ptr<ps::RegistryService> registry_;
  std::unique_ptr<launch::Starter> starter_;
  std::string disk_;  // where servers on this machine keep rows, or empty
  std::map<std::string, Slot> slots_;
  std::optional<launch::WorkerFailure> failure_;  // that was not taken yet
  Moment keepalive_at_;
};

}  // namespace muster::cli
