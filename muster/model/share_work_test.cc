#include "muster/model/share_work.h"

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace muster::model {
namespace {

struct Shared {
  std::vector<int> calls;
  std::set<std::thread::id> threads;
};

Shared share(int threads, int64_t count) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  Shared shared{std::vector<int>(static_cast<size_t>(count)), {}};
  std::mutex mutex;
  share_work(count, [&](int64_t first, int64_t last) {
    const std::lock_guard lock(mutex);
    shared.threads.insert(std::this_thread::get_id());
    for (int64_t i = first; i < last; ++i) ++shared.calls[static_cast<size_t>(i)];
  });
  at::set_num_threads(before);
  return shared;
}

TEST(ShareWork, CallsForEachOnce) {
  for (const int64_t count : {0, 1, 2, 7}) {
    for (const int threads : {1, 2, 3}) {
      const auto shared = share(threads, count);
      EXPECT_EQ(shared.calls, std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

TEST(ShareWork, HelpersTakeTheirShare) {
#ifdef __clang__
  GTEST_SKIP() << "clang's OpenMP is not libtorch's";
#endif
  EXPECT_EQ(share(1, 8).threads.size(), 1U);
  EXPECT_EQ(share(2, 8).threads.size(), 2U);
  EXPECT_EQ(share(3, 8).threads.size(), 3U);
}

}  // namespace
}  // namespace muster::model
