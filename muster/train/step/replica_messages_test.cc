#include "muster/train/step/replica_messages.h"

#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/comm/local_group.h"

namespace muster::train {
namespace {

constexpr size_t kReplicas = 4;
// Who has which; one has none.
const std::vector<std::vector<int>> kOwn = {{2, 0}, {3, 1}, {}};

struct Case {
  std::function<size_t(int replica)> size;
  std::function<uint64_t(int rank)> common = [](int) { return 7; };
  int not_finite = -1;  // a replica
  int not_well = -1;    // a worker: Peers::finite
  size_t largest = 4 << 20;
};

std::vector<std::byte> text_of(int replica, size_t size) {
  std::vector<std::byte> text(size);
  for (size_t i = 0; i < size; ++i)
    text[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(replica) * 5);
  return text;
}

// What each member got; nothing if it failed.
std::vector<std::optional<bool>> exchange(const Case& c) {
  const auto hub = comm::LocalHub::create({"a", "b", "c"});
  std::vector<std::optional<bool>> got(kOwn.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < kOwn.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto group = hub->join(static_cast<int>(rank));
      const RoundExchange::Peers peers = {.replicas = kOwn[rank],
                                          .group = **group,
                                          .timeout = std::chrono::seconds(20),
                                          .vitals = kNoVitals,
                                          .finite = static_cast<int>(rank) != c.not_well};
      ReplicaMessages messages(kReplicas, c.largest, nullptr);
      for (int again = 0; again < 2; ++again) {
        messages.clear();
        for (const int replica : kOwn[rank]) {
          auto& out = messages.begin(replica);
          const auto text = text_of(replica, c.size(replica));
          out.insert(out.end(), text.begin(), text.end());
          messages.end(replica != c.not_finite);
        }
        const auto finite = messages.exchange(c.common(static_cast<int>(rank)), peers);
        if (!finite.ok()) return;
        got[rank] = *finite;
        if (!*finite) return;
        for (size_t r = 0; r < kReplicas; ++r) {
          const auto message = messages.of(r);
          const auto number = static_cast<int>(r);
          EXPECT_EQ(std::vector(message.begin(), message.end()), text_of(number, c.size(number)));
        }
      }
    });
  }
  threads.clear();
  return got;
}

using Got = std::vector<std::optional<bool>>;
const Got kAll = {true, true, true};
const Got kNotFinite = {false, false, false};
const Got kFailed(3);

TEST(ReplicaMessages, AllWorkersGetThoseOfAllReplicas) {
  EXPECT_EQ(exchange({.size = [](int) { return 1000; }}), kAll);
  EXPECT_EQ(exchange({.size = [](int) { return 0; }}), kAll);
  EXPECT_EQ(exchange({.size = [](int replica) { return replica == 3 ? 5000u : 1u; }}), kAll);
}

TEST(ReplicaMessages, LongOnesGoInPieces) {
  EXPECT_EQ(exchange({.size = [](int) { return (3 << 20) - 7; }}), kAll);
  EXPECT_EQ(exchange({.size = [](int replica) { return replica == 2 ? (2 << 20) + 1 : 9; }}), kAll);
}

TEST(ReplicaMessages, AllWorkersLearnThatSomethingIsNotFinite) {
  EXPECT_EQ(exchange({.size = [](int) { return 10; }, .not_finite = 1}), kNotFinite);
  EXPECT_EQ(exchange({.size = [](int) { return 10; }, .not_well = 2}), kNotFinite);
}

TEST(ReplicaMessages, TheGroupFailsIfWhatAllShouldHaveDiffersOrAMessageIsTooLong) {
  EXPECT_EQ(exchange({.size = [](int) { return 10; },
                      .common = [](int rank) { return rank == 1 ? 8u : 7u; }}),
            kFailed);
  EXPECT_EQ(exchange({.size = [](int) { return 1000; }, .largest = 10}), kFailed);
}

}  // namespace
}  // namespace muster::train
