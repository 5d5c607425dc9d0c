#include "muster/train/step/team.h"

#include <algorithm>
#include <string>
#include <utility>

#include "muster/base/float_mode.h"
#include "muster/model/share_work.h"
#include "muster/train/numerics/fingerprint.h"

namespace muster::train {
namespace {

// Its helpers may have been there before it.
void prepare_thread(int threads) {
  use_threads_in_operations(threads);
  flush_subnormals();
  model::share_work(threads, [](int64_t, int64_t) { flush_subnormals(); });
}

}  // namespace

Team::Team(int members, int threads_per_member) : threads_per_member_(threads_per_member) {
  threads_.reserve(static_cast<size_t>(members) - 1);
  for (int member = 1; member < members; ++member) {
    threads_.emplace_back("lane-" + std::to_string(member), [this, member] { serve(member); });
  }
  prepare_thread(threads_per_member_);
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
  flush_subnormals();  // whichever thread this is
  body(0);

  for (int left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire)) {
    working_.wait(left, std::memory_order_acquire);
  }
}

void Team::for_each(size_t count, size_t grain, const std::function<void(int, size_t)>& body) {
  std::atomic<size_t> next{0};
  run([&](int member) {
    const auto take = [&](int thread) {
      for (size_t i = next.fetch_add(grain); i < count; i = next.fetch_add(grain)) {
        for (size_t j = i; j < std::min(i + grain, count); ++j) body(thread, j);
      }
    };
    if (threads_per_member_ == 1) return take(member);
    // The helpers are awake and would only be in the way of other threads: let them work.
    model::share_work(threads_per_member_, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        take(member * threads_per_member_ + static_cast<int>(i));
      }
    });
  });
}

void Team::serve(int member) {
  prepare_thread(threads_per_member_);
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
