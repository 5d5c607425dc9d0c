// Workers that the coordinator removed and whose processes must end: they hang (their heartbeats
// continue but their work makes no progress, so they neither exit nor rejoin), or an audit found
// them faulty (memory that was damaged is best replaced with the process). The supervisor kills and
// restarts those that it started itself.
//
// The coordinator's thread adds, the supervisor's thread takes. Safe for concurrent use.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"

namespace muster::launch {

struct KillRequest {
  std::string id;
  int64_t process = 0;  // its pid, as the worker told the coordinator
  std::string reason;   // why the coordinator removed it
  Moment when;          // when the coordinator reported the removal
};

class KillRequests {
 public:
  void add(KillRequest worker) {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(worker));
  }
  // All that were added since the last call.
  std::vector<KillRequest> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(added_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<KillRequest> added_;
};

}  // namespace muster::launch
