#include "muster/train/team.h"

#include <algorithm>
#include <string>
#include <utility>

namespace muster::train {

Team::Team(int members, std::function<void(int)> prepare) : prepare_(std::move(prepare)) {
  threads_.reserve(static_cast<size_t>(members) - 1);
  for (int member = 1; member < members; ++member) {
    threads_.emplace_back("lane-" + std::to_string(member), [this, member] { serve(member); });
  }
  if (prepare_) prepare_(0);
}

Team::~Team() {
  stop_ = true;
  ++generation_;
  generation_.notify_all();
}

void Team::run(const std::function<void(int)>& body) {
  body_ = &body;
  working_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(0);
  for (int left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire)) {
    working_.wait(left, std::memory_order_acquire);
  }
}

void Team::for_each(size_t count, size_t grain, const std::function<void(int, size_t)>& body) {
  std::atomic<size_t> next{0};
  run([&](int member) {
    for (size_t i = next.fetch_add(grain); i < count; i = next.fetch_add(grain)) {
      for (size_t j = i; j < std::min(i + grain, count); ++j) body(member, j);
    }
  });
}

void Team::serve(int member) {
  if (prepare_) prepare_(member);
  uint32_t seen = 0;
  while (true) {
    generation_.wait(seen, std::memory_order_acquire);
    // run() waits for everybody, so at most one run can have begun since.
    ++seen;
    if (stop_) return;
    (*body_)(member);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace muster::train
