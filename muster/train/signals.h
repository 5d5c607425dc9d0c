// How a person or a scheduler stops a worker: Ctrl-C (SIGINT), SIGTERM and, for one that is alone,
// a terminal that is closed (SIGHUP) ask it to save and leave; a second one means now.
#pragma once

namespace muster::train {

// While it lives, these signals are noted here instead of ending the process; the second signal
// (base/one_signal.h) ends it at once. At most one may exist: signals belong to the process.
class StopSignals {
 public:
  // `hangups`: SIGHUP too. One of several workers shall not stop the job because a line to its
  // machine was closed.
  explicit StopSignals(bool hangups);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came, or 0.
  int received() const;

 private:
  bool hears_hangups_ = false;
};

}  // namespace muster::train
