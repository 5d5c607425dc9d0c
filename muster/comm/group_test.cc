// What every backend must do, over several sizes. Failures: group_failure_test.cc.
#include "muster/comm/group.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/comm/group_testing.h"
#include "muster/comm/topology.h"

namespace muster::comm {
namespace {

// None, one, fewer than members, odd, around the size of an inlined message, several segments.
const std::vector<size_t> kCounts = {0, 1, 2, 3, 5, 7, 1000, 4096, 4097, 8191, 30'000, 1'000'003};

// Different for each member, element and call; sums wrap for some.
int32_t value(int rank, size_t i, size_t call = 0) {
  return static_cast<int32_t>((i + 1) * 2654435761u + static_cast<size_t>(rank) * 40503 +
                              call * 97);
}

class GroupTest : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  static int size() { return std::get<1>(GetParam()); }
  void SetUp() override { groups_ = make_groups(std::get<0>(GetParam()), size()); }
  // Runs on all members at once; a Status that is not good fails the test.
  void together(const std::function<void(Group&)>& body) {
    on_all(size(), [&](int r) { body(*groups_[static_cast<size_t>(r)]); });
  }
  std::vector<std::unique_ptr<Group>> groups_;
};

void expect_good(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message());
}

TEST_P(GroupTest, KnowsItsMembersAndHowTheyTalk) {
  const Backend backend = std::get<0>(GetParam());
  std::string_view transport = "shared memory";
  if (backend == Backend::kHosts) transport = size() == 2 ? "tcp" : "shared memory and tcp";
  if (backend == Backend::kGloo) transport = "tcp";
  if (backend == Backend::kLocal || size() == 1) transport = "one process";
  together([&](Group& g) {
    EXPECT_EQ(g.transport(), transport);
    EXPECT_EQ(g.size(), size());
    for (int r = 0; r < size(); ++r) EXPECT_EQ(g.name(r), test_names(size())[size_t(r)]);
    EXPECT_FALSE(g.failed());
    EXPECT_FALSE(g.failure().has_value());
  });
}

TEST_P(GroupTest, AllreduceSumsInt32) {
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      std::vector<int32_t> data(n), expected(n);
      for (size_t i = 0; i < n; ++i) {
        data[i] = value(g.rank(), i, n);
        uint32_t sum = 0;
        for (int r = 0; r < g.size(); ++r) sum += static_cast<uint32_t>(value(r, i, n));
        expected[i] = static_cast<int32_t>(sum);
      }
      expect_good(g.allreduce_sum(std::span(data)));
      EXPECT_TRUE(data == expected) << n;
    }
  });
}

// Small ones and, here and there, large ones; the sums are those of an allreduce without packing.
TEST_P(GroupTest, AllreduceSumsPackedInt32) {
  const auto small = [](int rank, size_t i, size_t n) {
    const int32_t v = value(rank, i, n);
    return i % 5000 == 17 ? v : v % 15;
  };
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      std::vector<int32_t> data(n), expected(n);
      for (size_t i = 0; i < n; ++i) {
        data[i] = small(g.rank(), i, n);
        uint32_t sum = 0;
        for (int r = 0; r < g.size(); ++r) sum += static_cast<uint32_t>(small(r, i, n));
        expected[i] = static_cast<int32_t>(sum);
      }
      // More than once, as large ones are packed in one way and in another.
      const auto own = data;
      for (int i = 0; i < 3; ++i) {
        data = own;
        expect_good(g.allreduce_sum(std::span(data), {.pack = true}));
        EXPECT_TRUE(data == expected) << n;
      }
    }
  });
}

TEST_P(GroupTest, AllreduceSumsFloatsAndAllGetTheSameBits) {
  for (const size_t n : kCounts) {
    std::vector<std::vector<float>> results(static_cast<size_t>(size()));
    together([&](Group& g) {
      std::vector<float> data(n);
      for (size_t i = 0; i < n; ++i) data[i] = static_cast<float>(value(g.rank(), i)) * 1e-9f;
      expect_good(g.allreduce_sum(std::span(data)));
      results[static_cast<size_t>(g.rank())] = data;
    });
    for (size_t i = 0; i < n; i += 1 + n / 1000) {
      double sum = 0;
      for (int r = 0; r < size(); ++r) sum += static_cast<float>(value(r, i)) * 1e-9f;
      ASSERT_NEAR(results[0][i], sum, 1e-4);
    }
    for (const auto& other : results) {
      EXPECT_EQ(0, n == 0 ? 0 : std::memcmp(other.data(), results[0].data(), n * sizeof(float)));
    }
  }
}

TEST_P(GroupTest, AllreduceTakesTheMaximumOfUint8) {
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      std::vector<uint8_t> data(n), expected(n);
      for (size_t i = 0; i < n; ++i) {
        data[i] = static_cast<uint8_t>(value(g.rank(), i));
        for (int r = 0; r < g.size(); ++r) {
          expected[i] = std::max(expected[i], static_cast<uint8_t>(value(r, i)));
        }
      }
      expect_good(g.allreduce_max(std::span(data)));
      EXPECT_TRUE(data == expected) << n;
    }
  });
}

TEST_P(GroupTest, ReduceScatterThenAllgatherIsAllreduce) {
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      std::vector<int32_t> whole(n), parts(n);
      for (size_t i = 0; i < n; ++i) whole[i] = parts[i] = value(g.rank(), i, n);
      expect_good(g.allreduce_sum(std::span(whole)));
      expect_good(g.reduce_scatter_sum(std::span(parts)));
      const Part mine = part_of(n, g.rank(), g.size());
      for (size_t i = mine.begin; i < mine.begin + mine.size; ++i) {
        ASSERT_EQ(parts[i], whole[i]) << n << " " << i;
      }
      expect_good(g.allgather(std::span(parts)));
      EXPECT_TRUE(parts == whole) << n;
    }
  });
}

TEST_P(GroupTest, AllgatherMovesAnyElement) {
  struct Row {
    double a;
    uint8_t b[9];
  };
  together([&](Group& g) {
    std::vector<Row> rows(static_cast<size_t>(3 * g.size() + 1));
    const Part mine = part_of(rows.size(), g.rank(), g.size());
    for (size_t i = mine.begin; i < mine.begin + mine.size; ++i) rows[i].a = static_cast<double>(i);
    expect_good(g.allgather(std::span(rows)));
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].a, static_cast<double>(i));
  });
}

TEST_P(GroupTest, BroadcastFromEachRoot) {
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      for (int root = 0; root < g.size(); ++root) {
        std::vector<int32_t> data(n);
        for (size_t i = 0; i < n; ++i) data[i] = value(g.rank(), i, n);
        expect_good(g.broadcast(std::span(data), root));
        bool same = true;
        for (size_t i = 0; i < n; ++i) same &= data[i] == value(root, i, n);
        EXPECT_TRUE(same) << n << " from " << root;
      }
    }
  });
}

// In shared memory both use the same blocks, in different ways.
TEST_P(GroupTest, BroadcastsAndSumsFollowEachOtherWithSlowReaders) {
  constexpr size_t kLarge = 700'001;
  together([&](Group& g) {
    for (int round = 0; round < 12; ++round) {
      const int root = round % g.size();
      std::vector<int32_t> told(kLarge, g.rank() == root ? round : -1);
      // One that reads while the others are in the next operation already.
      if (g.rank() == (root + 1) % g.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      expect_good(g.broadcast(std::span(told), root));
      std::vector<int32_t> sum(kLarge, g.rank() + round);
      expect_good(g.allreduce_sum(std::span(sum)));
      const auto is = [](int32_t wanted) { return [=](int32_t x) { return x == wanted; }; };
      EXPECT_TRUE(std::ranges::all_of(told, is(round))) << round;
      const int32_t all = g.size() * (g.size() - 1) / 2 + g.size() * round;
      EXPECT_TRUE(std::ranges::all_of(sum, is(all))) << round;
    }
  });
}

TEST_P(GroupTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  together([&](Group& g) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      expect_good(g.barrier());
      EXPECT_GE(came.load(), round * g.size());
    }
  });
}

TEST_P(GroupTest, SendAndRecvBetweenAllPairsThatCan) {
  together([&](Group& g) {
    for (const size_t n : kCounts) {
      for (int step = 1; step < g.size(); ++step) {
        const int to = (g.rank() + step) % g.size();
        const int from = (g.rank() - step + g.size()) % g.size();
        std::vector<int32_t> out(n), in(n);
        for (size_t i = 0; i < n; ++i) out[i] = value(g.rank(), i, n);
        // Both at once, as send may wait for its recv.
        std::thread sender;
        if (g.can_send(g.rank(), to)) {
          sender = std::thread([&] { expect_good(g.send(std::span(out), to, {.tag = 9})); });
        }
        if (g.can_send(from, g.rank())) {
          expect_good(g.recv(std::span(in), from, {.tag = 9}));
          bool same = true;
          for (size_t i = 0; i < n; ++i) same &= in[i] == value(from, i, n);
          EXPECT_TRUE(same) << n << " from " << from;
        }
        if (sender.joinable()) sender.join();
      }
    }
  });
}

TEST_P(GroupTest, AllPairsCanSendUnlessTheGroupIsLarge) {
  together([&](Group& g) {
    for (int a = 0; a < g.size(); ++a) {
      EXPECT_TRUE(g.size() == 1 || g.can_send(a, (a + 1) % g.size()));
      for (int b = 0; b < a; ++b) {
        EXPECT_EQ(g.can_send(a, b), g.can_send(b, a));
        EXPECT_TRUE(g.size() > kAllPairs || g.can_send(a, b));
      }
    }
  });
}

TEST_P(GroupTest, ManySmallOperationsInARow) {
  together([&](Group& g) {
    std::vector<int32_t> data(17);
    for (int call = 0; call < 300; ++call) {
      for (size_t i = 0; i < data.size(); ++i) data[i] = g.rank() + call;
      expect_good(g.allreduce_sum(std::span(data)));
      ASSERT_EQ(data[16], g.size() * call + g.size() * (g.size() - 1) / 2);
    }
  });
}

TEST_P(GroupTest, TagsDoNotMeet) {
  together([&](Group& g) {
    // Two collectives at once, begun in different orders on different members.
    const auto run = [&](uint32_t tag) {
      for (int call = 0; call < 20; ++call) {
        std::vector<int32_t> data(50'000, static_cast<int32_t>(tag + 1));
        expect_good(g.allreduce_sum(std::span(data), {.tag = tag}));
        EXPECT_EQ(data[49'999], static_cast<int32_t>(tag + 1) * g.size());
      }
    };
    std::thread other([&] { run(g.rank() % 2 == 0 ? 3 : 0); });
    run(g.rank() % 2 == 0 ? 0 : 3);
    other.join();
  });
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<Backend, int>>& info) {
  return backend_name(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Backends, GroupTest,
                         ::testing::Combine(::testing::Values(Backend::kLocal, Backend::kGloo,
                                                              Backend::kShared, Backend::kHosts,
                                                              Backend::kSites),
                                            ::testing::Values(1, 2, 3, 4, 8, 11, 19)),
                         case_name);

// The algorithms for much data, each also where it would not be chosen.
class AllreduceTest : public ::testing::TestWithParam<std::tuple<Allreduce, int>> {};

TEST_P(AllreduceTest, AddsUpWithTheSameBitsEverywhere) {
  const auto [algorithm, size] = GetParam();
  auto groups = make_groups(Backend::kGloo, size, nullptr, algorithm);
  for (const size_t n : {size_t{4097}, size_t{8191}, size_t{30'000}, size_t{1'000'003}}) {
    std::vector<std::vector<float>> floats(static_cast<size_t>(size));
    on_all(size, [&](int r) {
      Group& g = *groups[static_cast<size_t>(r)];
      std::vector<int32_t> data(n);
      for (size_t i = 0; i < n; ++i) data[i] = value(r, i, n);
      expect_good(g.allreduce_sum(std::span(data)));
      bool right = true;
      for (size_t i = 0; i < n; ++i) {
        uint32_t sum = 0;
        for (int other = 0; other < size; ++other) sum += static_cast<uint32_t>(value(other, i, n));
        right &= data[i] == static_cast<int32_t>(sum);
      }
      EXPECT_TRUE(right) << n << " on " << r;
      auto& mine = floats[static_cast<size_t>(r)];
      mine.resize(n);
      for (size_t i = 0; i < n; ++i) mine[i] = static_cast<float>(value(r, i)) * 1e-9f;
      expect_good(g.allreduce_sum(std::span(mine)));
    });
    for (const auto& other : floats) EXPECT_TRUE(other == floats[0]) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllreduceTest,
                         ::testing::Combine(::testing::Values(Allreduce::kExchange,
                                                              Allreduce::kHalving,
                                                              Allreduce::kBest),
                                            ::testing::Values(2, 3, 5, 8, 13, 16, 18)),
                         [](const auto& info) {
                           const auto algorithm = std::get<0>(info.param);
                           const std::string name = algorithm == Allreduce::kBest      ? "Best"
                                                    : algorithm == Allreduce::kHalving ? "Halving"
                                                                                       : "Exchange";
                           return name + std::to_string(std::get<1>(info.param));
                         });

// The promise of the whole program, as far as this module goes: eight lanes give one sum, whoever
// computes them and however they talk.
TEST(DeterminismTest, TheSameLanesGiveTheSameBitsForAnyGroup) {
  constexpr int kLanes = 8;
  constexpr size_t kCount = 70'001;
  std::vector<uint32_t> expected(kCount);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < kCount; ++i) expected[i] += static_cast<uint32_t>(value(lane, i));
  }
  for (const Backend backend :
       {Backend::kLocal, Backend::kGloo, Backend::kShared, Backend::kHosts}) {
    for (const int size : {1, 2, 3, 4, 8}) {
      auto groups = make_groups(backend, size);
      on_all(size, [&](int r) {
        std::vector<int32_t> sum(kCount);
        for (int lane = r; lane < kLanes; lane += size) {
          std::vector<int32_t> gradient(kCount);
          for (size_t i = 0; i < kCount; ++i) gradient[i] = value(lane, i);
          reduce_into(Reduction::kSumInt32, sum.data(), gradient.data(), kCount);
        }
        expect_good(groups[static_cast<size_t>(r)]->allreduce_sum(std::span(sum)));
        EXPECT_EQ(std::memcmp(sum.data(), expected.data(), kCount * 4), 0)
            << backend_name(backend) << size;
      });
    }
  }
}

TEST(PartTest, PartsCoverEverythingOnce) {
  for (const size_t count : {0ul, 1ul, 7ul, 8ul, 9ul, 1000ul}) {
    for (const int size : {1, 2, 3, 8}) {
      size_t next = 0;
      for (int r = 0; r < size; ++r) {
        const Part part = part_of(count, r, size);
        EXPECT_EQ(part.begin, next);
        next += part.size;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(ReduceTest, EveryInstructionSetGivesTheSameBits) {
  for (const auto reduction : {Reduction::kSumInt32, Reduction::kSumFloat, Reduction::kMaxUint8}) {
    for (const size_t n : {0ul, 1ul, 15ul, 64ul, 1001ul}) {
      const size_t bytes = n * element_size(reduction);
      std::vector<uint8_t> a(bytes), b(bytes), expected;
      // Bytes below 0x7f: no NaN, whose bits are nobody's business.
      for (size_t i = 0; i < bytes; ++i) {
        a[i] = static_cast<uint8_t>(i * 37 % 127);
        b[i] = static_cast<uint8_t>(i * 101 % 127);
      }
      for (const Isa isa : usable_isas()) {
        auto into = a;
        reduce_into(reduction, into.data(), b.data(), n, isa);
        if (expected.empty()) expected = into;
        EXPECT_EQ(into, expected) << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace muster::comm
