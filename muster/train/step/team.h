// The lane threads: a fixed team that runs one function at a time, each member with its number.
//
// The caller of run() is member 0 and works along, so that a team of one costs nothing. Between
// runs the others sleep; they never spin, because the machine may be shared.
//
// A member may have helpers: libtorch's own threads, which it shares each operation with
// (threads_per_lane). Those belong to the OpenMP runtime and do spin.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "muster/base/thread.h"

namespace muster::train {

class Team {
 public:
  // threads_per_member: the member itself and its helpers.
  explicit Team(int members, int threads_per_member = 1);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  int threads() const { return size() * threads_per_member_; }

  // Runs body(member) on every member and returns when all have returned. What they wrote is then
  // visible to the caller. The body must not throw.
  void run(const std::function<void(int member)>& body);

  // Calls body(thread, i) once for each i in [0, count), each on whichever thread is free, in runs
  // of `grain`; 0 <= thread < threads(), and no two calls have the same at the same time.
  void for_each(size_t count, size_t grain, const std::function<void(int thread, size_t i)>& body);

 private:
  void serve(int member);

  const int threads_per_member_;
  const std::function<void(int)>* body_ = nullptr;  // set by run() before it wakes the others
  std::atomic<uint32_t> generation_{0};             // one more for each run
  std::atomic<int> working_{0};                     // members still in the present run
  std::atomic<bool> stop_{false};
  std::vector<Thread> threads_;
};

}  // namespace muster::train
