// What a worker says of its own work while it is busy, so that the coordinator can tell long work
// from a hang (roster/decide.h): a part is done, and whether it waits for its peers.
#pragma once

#include <functional>

namespace muster::train {

// Both may be empty: a worker alone tells nobody.
struct Vitals {
  // From any thread: a lane, a batch of an evaluation, a part of a checkpoint or of a transfer is
  // done.
  std::function<void()> progress;
  // From the worker's own thread: it enters or leaves a collective of the group.
  std::function<void(bool waits)> waiting;

  void note_progress() const {
    if (progress) progress();
  }
};

// Tells nobody.
inline const Vitals kNoVitals;

// For as long as it lives the worker's own thread waits for its peers.
class WaitingForPeers {
 public:
  explicit WaitingForPeers(const Vitals& vitals) : vitals_(vitals) {
    if (vitals_.waiting) vitals_.waiting(true);
  }
  ~WaitingForPeers() {
    if (vitals_.waiting) vitals_.waiting(false);
  }
  WaitingForPeers(const WaitingForPeers&) = delete;
  WaitingForPeers& operator=(const WaitingForPeers&) = delete;

 private:
  const Vitals& vitals_;
};

}  // namespace muster::train
