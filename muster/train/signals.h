// How a person or a scheduler stops a worker: Ctrl-C (SIGINT), SIGTERM and, for one that is alone,
// a terminal that is closed (SIGHUP) ask it to save and leave; a second one means now.
#pragma once

#include <signal.h>

#include <array>
#include <memory>

#include "muster/base/result.h"

namespace muster::train {

// While it lives, these signals are noted here instead of ending the process; the second signal
// (base/one_signal.h) ends it at once. Then what was done at them before is done again, unless
// somebody else has changed that meanwhile: a worker may be part of a program that goes on. At most
// one may exist: signals belong to the process.
class StopSignals {
 public:
  // `hangups`: SIGHUP too. One of several workers shall not stop the job because a line to its
  // machine was closed. An error of kind kJob if there is one already.
  static Result<std::unique_ptr<StopSignals>> listen(bool hangups);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came, or 0.
  int received() const;

 private:
  explicit StopSignals(bool hangups);
  void hear(int number);

  struct Before {
    int number = 0;  // 0: not heard
    struct sigaction action{};
  };
  std::array<Before, 3> before_;
};

}  // namespace muster::train
