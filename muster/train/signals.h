// How a person or a scheduler stops a worker: Ctrl-C (SIGINT) and SIGTERM ask it to save and leave;
// a second one means now.
#pragma once

#include <atomic>

namespace muster::train {

// While it lives, SIGINT and SIGTERM are noted here instead of ending the process; the second
// signal ends it at once. At most one may exist: signals belong to the process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came, or 0.
  int received() const;
};

}  // namespace muster::train
