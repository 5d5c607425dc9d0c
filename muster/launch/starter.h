// How a worker is started: on this machine (local_starter.h) or over ssh (ssh_starter.h). The
// supervisor knows nothing else about where its workers are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/launch/ending.h"

namespace muster::launch {

inline constexpr Duration kKeepalive = std::chrono::seconds(3);

// A worker that was started. Not safe for concurrent use.
class Process {
 public:
  virtual ~Process() = default;
  // Our child, whose end is the worker's end.
  virtual pid_t pid() const = 0;
  // The worker's own process id, as it tells the coordinator; 0: it is on another machine.
  virtual int64_t worker_process() const = 0;
  // Sends a signal to the worker. SIGKILL always ends pid(), and the worker with it.
  virtual void send(int signal) = 0;
  // Tells the worker's side that we are alive. Called every `kKeepalive`, if wants_keepalive().
  virtual bool wants_keepalive() const { return false; }
  virtual void keep_alive() {}
  // How the worker ended, given how pid() did.
  virtual Ending ending(const Ending& seen) const { return seen; }
};

class Starter {
 public:
  virtual ~Starter() = default;
  // `id`: the slot. Returns once the process runs; it must be started in the calling thread.
  virtual Result<std::unique_ptr<Process>> start(const std::string& id) = 0;
  // What the worker in this slot wrote to standard error since it was last started: the last lines,
  // at most `lines`.
  virtual std::string last_words(const std::string& id, int lines) const = 0;
};

}  // namespace muster::launch
