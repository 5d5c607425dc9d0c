#include "muster/train/membership/transfer.h"

#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "muster/comm/local_group.h"
#include "muster/comm/topology.h"

namespace muster::train {
namespace {

std::vector<int> ranks(int begin, int count) {
  std::vector<int> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

TEST(TransferRounds, NobodyWaitsForAThirdAndEachGetsAll) {
  for (const int sources : {1, 2, 3, 8, 9, 63}) {
    for (const int receivers : {1, 2, 3, 8, 9, 63}) {
      if (receivers > sources) continue;
      for (const uint64_t bytes : {uint64_t{1}, uint64_t{10'000}, uint64_t{50} << 20}) {
        std::vector<Receiver> wanted;
        for (int r = 0; r < receivers; ++r) wanted.push_back({sources + r, ranks(0, sources)});
        const auto rounds = transfer_rounds(bytes, wanted);
        EXPECT_LE(rounds.size(), 8U);
        std::vector<std::set<std::pair<uint64_t, uint64_t>>> got(static_cast<size_t>(receivers));
        for (const auto& round : rounds) {
          std::set<int> busy;
          for (const Handover& one : round) {
            EXPECT_TRUE(busy.insert(one.source).second) << "a source serves two in one round";
            EXPECT_TRUE(busy.insert(one.receiver).second) << "a receiver is served twice";
            EXPECT_LT(one.source, sources);
            got[static_cast<size_t>(one.receiver - sources)].insert({one.offset, one.bytes});
          }
        }
        for (const auto& stripes : got) {
          uint64_t next = 0;
          for (const auto& [offset, size] : stripes) {
            EXPECT_EQ(offset, next);
            next += size;
          }
          EXPECT_EQ(next, bytes);
        }
      }
    }
  }
}

// Three newcomers at the end of a large group, each with the sources that are connected to it.
TEST(TransferRounds, EachReceiverTakesFromThoseThatCanSendToIt) {
  const comm::Topology topology(64, {0});
  std::vector<Receiver> receivers;
  for (const int rank : {61, 62, 63}) {
    Receiver receiver{.rank = rank, .sources = {}};
    for (const int peer : topology.peers(rank)) {
      if (peer < 61) receiver.sources.push_back(peer);
    }
    EXPECT_GE(receiver.sources.size(), 8U);
    receivers.push_back(receiver);
  }
  std::map<int, uint64_t> got;
  const auto rounds = transfer_rounds(50 << 20, receivers);
  EXPECT_LE(rounds.size(), 10U);
  for (const auto& round : rounds) {
    std::set<int> busy;
    for (const Handover& one : round) {
      EXPECT_TRUE(topology.connected(one.source, one.receiver));
      EXPECT_TRUE(busy.insert(one.source).second && busy.insert(one.receiver).second);
      got[one.receiver] += one.bytes;
    }
  }
  for (const int rank : {61, 62, 63}) EXPECT_EQ(got[rank], uint64_t{50} << 20);
}

struct Case {
  int sources;
  int receivers;
};

class TransferState : public testing::TestWithParam<Case> {};

// More than two parts of 4 MiB, and not a multiple of anything.
TEST_P(TransferState, ReachesAllWhoReceiveAndLeavesTheSourcesAlone) {
  const auto [sources, receivers] = GetParam();
  const int size = sources + receivers;
  std::vector<std::byte> truth((9 << 20) + 12'345);
  for (size_t i = 0; i < truth.size(); ++i) truth[i] = static_cast<std::byte>(i * 2654435761U >> 7);
  roster::Agreement agreement;
  // Ranks of both kinds are mixed.
  for (int rank = 0; rank < size; ++rank) {
    const bool source = rank * sources / size != (rank + 1) * sources / size;
    agreement.actions.push_back(source ? roster::Action::kGoOn : roster::Action::kReceive);
    if (source) agreement.sources.push_back(rank);
  }
  ASSERT_EQ(agreement.sources.size(), static_cast<size_t>(sources));
  std::vector<std::string> names;
  for (int rank = 0; rank < size; ++rank) names.push_back(std::to_string(rank));
  const auto hub = comm::LocalHub::create(names);
  std::vector<std::vector<std::byte>> states(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const bool receives =
          agreement.actions[static_cast<size_t>(rank)] == roster::Action::kReceive;
      auto& state = states[static_cast<size_t>(rank)];
      state = receives ? std::vector<std::byte>(truth.size()) : truth;
      auto group = hub->join(rank);
      ASSERT_TRUE(group.ok());
      const auto received = transfer_state(state, **group, agreement, Vitals{}, {});
      ASSERT_TRUE(received.ok()) << received.error().message();
      EXPECT_EQ(*received, receives ? truth.size() : 0);
    });
  }
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(states[static_cast<size_t>(rank)] == truth) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, TransferState,
                         testing::Values(Case{1, 1}, Case{3, 1}, Case{3, 2}, Case{2, 2}, Case{1, 3},
                                         Case{2, 5}, Case{9, 4}));

}  // namespace
}  // namespace muster::train
