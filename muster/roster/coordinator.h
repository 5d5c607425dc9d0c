// The coordinator as a server: a Registrar (registrar.h) behind gRPC. `muster train` embeds one;
// `muster coordinator` is nothing but one.
//
// It promises: a worker whose process ends is noticed when the kernel closes its connection (within
// milliseconds); a new roster is on its way to all members in the same call that decided it.
// It refuses: to touch training data or weights, to store anything, to decide anything itself.
//
// Threads: `roster-server`, which owns the completion queue, and `roster-events`, which calls the
// callbacks, so that a log on slow storage delays no worker. gRPC has a few of its own beside
// them. Never fork after start(): gRPC's threads do not survive it. Spawn (posix_spawn) instead.
//
// Safe for concurrent use.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/base/run_offer.h"
#include "muster/roster/registrar.h"
#include "muster/roster/status.h"
#include "muster/roster/types.h"

namespace muster::roster {

struct CoordinatorOptions {
  Options roster;
  // Where to listen. Port 0: any that is free. There is no encryption yet, so beyond this machine
  // only inside a network one trusts.
  std::string address = "127.0.0.1:0";
  // Where the job's parameter servers are registered; empty: it has none. Whoever asks for the
  // status is told.
  std::string servers;
  // For workers on hosts that do not share the launcher's run directory; empty: all must.
  RunOffer offer;
  // Called in the thread `roster-events`, one at a time and in order, without any lock held. They
  // may take long; while they do, at most kMostEvents events wait, and further ones are dropped.
  std::function<void(const Event&)> on_event;
  std::function<void(const Gone&)> on_gone;
  std::function<void(const Issued&)> on_roster;
  static constexpr size_t kMostEvents = 10000;
  // A connection is closed from this end if it has not asked to join after this long, or if the
  // other end has not hung up this long after its last message: neither is a worker's, and each
  // would hold memory and a descriptor for ever.
  Duration session_timeout = std::chrono::seconds(5);
};

class Coordinator {
 public:
  // `clock` must be a steady one that runs, and outlive the coordinator.
  static Result<std::unique_ptr<Coordinator>> start(CoordinatorOptions options, const Clock& clock);
  // Breaks all connections. Workers go on training, and look for another coordinator, unless the
  // job has ended and they know: see end().
  ~Coordinator();

  // As workers reach it: "127.0.0.1:40123".
  std::string address() const;

  // A process that this launcher started has ended. `process`: its pid; 0: whichever is in the
  // slot.
  void exited(const std::string& id, int64_t process, const std::string& how);
  StatusReport status() const;
  // The same in short, for those who ask at every event.
  struct Summary {
    bool waiting = false;  // fewer workers than workers.min
    bool ended = false;
    size_t members = 0;
    bool finished = false;  // ended, with all its steps done
  };
  Summary summary() const;
  // How many workers are known whose id is none of these.
  size_t others(const std::vector<std::string>& ids) const;
  // The job ends in good order, finished or, if it is not, stopped for `reason`: every worker is
  // told so. Waits until all have hung up, but not longer than `timeout`; false: some may not know.
  // Who comes later is told too, as long as this coordinator is there. Not from a callback.
  bool end(const std::string& reason, Duration timeout = std::chrono::seconds(1));

 private:
  class Server;
  explicit Coordinator(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

// The same for those on another machine. They wait at most `timeout`.
Status send_exited(const std::string& address, const std::string& job, const std::string& id,
                   int64_t process, const std::string& how, Duration timeout);
Result<StatusReport> fetch_status(const std::string& address, Duration timeout);
// CoordinatorOptions::offer.
Result<RunOffer> fetch_offer(const std::string& address, Duration timeout);

// For Options::term of a coordinator without etcd: milliseconds since 1970.
uint64_t term_from_clock(const Clock& clock);

}  // namespace muster::roster
