// Starting programs, and the signals of whoever started them.
//
// A program is spawned, never forked (gRPC's threads would not survive it), in a process group of
// its own, so that nothing typed at the terminal reaches it directly. It gets our environment, one
// thread per operation unless the user chose (OMP_NUM_THREADS, MKL_NUM_THREADS), and
// MUSTER_LAUNCHER_PID, by which a worker sees that we are gone.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "muster/base/result.h"
#include "muster/launch/ending.h"

namespace muster::launch {

// While it lives, the signals in set() wait in the queue instead of acting on this process: those a
// launcher passes on, SIGTSTP, SIGCONT and SIGCHLD. Signals that were ignored when we started
// (nohup, a background job of a script) stay ignored.
//
// Must be made while the process has one thread: threads inherit it.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& set() const { return set_; }
  const sigset_t& before() const { return before_; }

 private:
  void add_unless_ignored(int number);
  sigset_t set_{};
  sigset_t before_{};
};

// File descriptors for the standard streams of a program; -1: ours.
struct Streams {
  int in = -1;
  int out = -1;
  int err = -1;
  bool read_nothing = false;
  bool write_nothing = false;  // to standard output
};

// Returns once the program runs. It has the signals that were held before `held`.
Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    const HeldSignals& held, const Streams& streams);

// How our child ended, or nothing while it runs. Once it has told, its pid may belong to another.
std::optional<Ending> reap(pid_t pid);

}  // namespace muster::launch
