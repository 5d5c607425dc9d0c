#include "muster/comm/topology.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <gtest/gtest.h>

namespace muster::comm {
namespace {

std::vector<int> everyone(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Whatever the algorithms of a team use (gloo_collectives.cc, gloo_allreduce.cc) is there.
void expect_usable(const Topology& topology, const std::vector<int>& team) {
  const int size = static_cast<int>(team.size());
  const auto linked = [&](int a, int b) {
    return topology.connected(team[static_cast<size_t>(a)], team[static_cast<size_t>(b)]);
  };
  for (int a = 0; a < size; ++a) {
    for (int k = 1; k < size; k <<= 1) {
      EXPECT_TRUE(linked(a, (a + k) % size)) << "barrier, allgather: " << size << " " << a;
    }
    if (a != 0) {
      EXPECT_TRUE(linked(a, a - (a & -a))) << "tree: " << size << " " << a;
    }
    for (int root = 0; root < size; root += 1 + size / 7) {
      const int place = (a - root + size) % size;
      if (place != 0) {
        EXPECT_TRUE(linked(a, (place - (place & -place) + root) % size))
            << "broadcast from " << root << ": " << size << " " << a;
      }
    }
  }
  const HalvingPlaces places(size);
  for (int i = 0; i < places.extra; ++i) EXPECT_TRUE(linked(2 * i, 2 * i + 1));
  for (int place = 0; place < places.power; ++place) {
    const int member = places.member(place);
    EXPECT_EQ(places.place(member), place);
    EXPECT_EQ(places.paired(member), place < places.extra);
    for (int bit = 1; bit < places.power; bit <<= 1) {
      EXPECT_TRUE(linked(member, places.member(place ^ bit))) << "halving: " << size;
    }
  }
}

TEST(Topology, SmallGroupsConnectAllPairs) {
  for (int size = 2; size <= kAllPairs; ++size) {
    const Topology topology(size, {0});
    for (int a = 0; a < size; ++a) {
      EXPECT_EQ(topology.peers(a).size(), static_cast<size_t>(size) - 1);
      EXPECT_FALSE(topology.connected(a, a));
    }
  }
}

TEST(Topology, LargeGroupsHaveWhatTheAlgorithmsUse) {
  for (const int size : {17, 18, 19, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 200}) {
    std::vector<int> leaders;
    for (int rank = 0; rank < size; rank += 3) leaders.push_back(rank);
    const Topology topology(size, leaders);
    expect_usable(topology, everyone(size));
    expect_usable(topology, leaders);
    for (int a = 0; a < size; ++a) {
      EXPECT_TRUE(std::ranges::is_sorted(topology.peers(a)));
      for (const int b : topology.peers(a)) EXPECT_TRUE(topology.connected(b, a));
    }
  }
}

TEST(Topology, AMemberOfALargeGroupHasFewPeers) {
  for (const auto& [size, most] : {std::pair{64, 11}, {63, 17}, {1000, 30}, {1024, 19}}) {
    const Topology topology(size, {0});
    for (int a = 0; a < size; ++a) {
      EXPECT_LE(topology.peers(a).size(), static_cast<size_t>(most)) << size << " " << a;
    }
  }
}

}  // namespace
}  // namespace muster::comm
