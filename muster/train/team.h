// The lane threads: a fixed team that runs one function at a time, each member with its number.
//
// The caller of run() is member 0 and works along, so that a team of one costs nothing. Between
// runs the others sleep; they never spin, because the machine may be shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "muster/base/thread.h"

namespace muster::train {

class Team {
 public:
  // `prepare` runs once on every member, on its own thread, before its first work; on member 0 at
  // once.
  Team(int members, std::function<void(int member)> prepare);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs body(member) on every member and returns when all have returned. What they wrote is then
  // visible to the caller. The body must not throw.
  void run(const std::function<void(int member)>& body);

  // Calls body(member, i) once for each i in [0, count), each on whichever member is free, in runs
  // of `grain`.
  void for_each(size_t count, size_t grain, const std::function<void(int member, size_t i)>& body);

 private:
  void serve(int member);

  std::function<void(int)> prepare_;
  const std::function<void(int)>* body_ = nullptr;  // set by run() before it wakes the others
  std::atomic<uint32_t> generation_{0};             // one more for each run
  std::atomic<int> working_{0};                     // members still in the present run
  std::atomic<bool> stop_{false};
  std::vector<Thread> threads_;
};

}  // namespace muster::train
