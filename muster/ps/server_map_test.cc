#include "muster/ps/server_map.h"

#include <array>
#include <map>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

constexpr ShardNumber kShards = 4096;  // many, as parts of them are compared

ServerEntry entry(std::string id, uint64_t incarnation, bool ready, std::string host = "") {
  ServerEntry made;
  made.key.id = std::move(id);
  made.key.incarnation = incarnation;
  made.ready = ready;
  made.host = std::move(host);
  return made;
}

ServerMap make_map(int ready, int joining = 0) {
  ServerMap map;
  map.epoch = 1;
  for (int i = 0; i < ready + joining; ++i) {
    map.servers.push_back(entry("server" + std::to_string(i), 7, i < ready));
  }
  return map;
}

TEST(ServerMap, ShardsAreSpreadEvenly) {
  const auto map = make_map(5);
  std::map<std::string, int> primaries;
  std::map<std::string, int> backups;
  for (ShardNumber shard = 0; shard < kShards; ++shard) {
    const auto holders = holders_of(shard, map, 2);
    ASSERT_TRUE(holders.primary);
    ASSERT_EQ(holders.followers.size(), 1U);
    ASSERT_NE(*holders.primary, holders.followers[0]);
    ++primaries[holders.primary->id];
    ++backups[holders.followers[0].id];
  }
  ASSERT_EQ(primaries.size(), 5U);
  for (const auto& counts : {primaries, backups}) {
    for (const auto& [id, count] : counts) EXPECT_NEAR(count, kShards / 5.0, 100) << id;
  }
}

TEST(ServerMap, KeysAreSpreadEvenly) {
  constexpr ShardNumber kFew = 16;
  std::array<int, kFew> counts{};
  for (uint64_t key = 0; key < 16000; ++key) ++counts.at(shard_of(key, kFew));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(ServerMap, WhenAServerGoesItsBackupsBecomePrimariesAndNothingElseMoves) {
  const auto before = make_map(5);
  auto after = before;
  after.servers.erase(after.servers.begin() + 2);
  for (ShardNumber shard = 0; shard < kShards; ++shard) {
    const auto was = holders_of(shard, before, 2);
    const auto is = holders_of(shard, after, 2);
    if (was.primary->id == "server2") {
      EXPECT_EQ(*is.primary, was.followers[0]);
    } else {
      EXPECT_EQ(*is.primary, *was.primary);
      if (was.followers[0].id != "server2") {
        EXPECT_EQ(is.followers, was.followers);
      }
    }
  }
}

TEST(ServerMap, OneThatJoinsFollowsExactlyWhatItWillHold) {
  const auto before = make_map(3, 1);
  auto after = before;
  after.servers[3].ready = true;
  const auto& joiner = before.servers[3].key;
  for (const int copies : {1, 2}) {
    int follows = 0;
    for (ShardNumber shard = 0; shard < kShards; ++shard) {
      const auto was = holders_of(shard, before, copies);
      const auto is = holders_of(shard, after, copies);
      EXPECT_NE(was.role_of(joiner), ShardRole::kPrimary);
      EXPECT_EQ(was.role_of(joiner) == ShardRole::kFollower,
                is.role_of(joiner) != ShardRole::kNone);
      follows += was.role_of(joiner) == ShardRole::kFollower ? 1 : 0;
    }
    EXPECT_NEAR(follows, copies * kShards / 4.0, 100);
  }
}

TEST(ServerMap, TheOrderOfServersDoesNotMatterNorDoIncarnations) {
  const auto map = make_map(4);
  ServerMap other = map;
  std::swap(other.servers[0], other.servers[3]);
  other.servers[1].key.incarnation = 99;
  for (ShardNumber shard = 0; shard < 100; ++shard) {
    EXPECT_EQ(holders_of(shard, map, 2).primary->id, holders_of(shard, other, 2).primary->id);
  }
}

TEST(ServerMap, OneServerHasAllAndNoneHasNone) {
  const auto alone = holders_of(3, make_map(1), 2);
  EXPECT_EQ(alone.primary->id, "server0");
  EXPECT_TRUE(alone.followers.empty());
  EXPECT_FALSE(holders_of(3, make_map(0), 2).primary);
}

// Servers of several hosts, some of them gone.
ServerMap make_hosts(const std::vector<int>& servers_of_host) {
  ServerMap map;
  map.epoch = 1;
  for (size_t host = 0; host < servers_of_host.size(); ++host) {
    const auto name = "host" + std::to_string(host);
    for (int i = 0; i < servers_of_host[host]; ++i) {
      map.servers.push_back(entry(name + "-" + std::to_string(i), 7, true, name));
    }
  }
  return map;
}

void go(ServerMap& map, size_t server) {
  map.away.push_back({map.servers[server].key.id, map.servers[server].host});
  map.servers.erase(map.servers.begin() + static_cast<std::ptrdiff_t>(server));
}

TEST(ServerMap, TheTwoCopiesAreOnDifferentHosts) {
  for (const auto& servers : {std::vector{1, 1}, {2, 2}, {1, 3}, {4, 1, 2}, {3, 3, 3}}) {
    const auto map = make_hosts(servers);
    std::map<std::string, int> primaries;
    for (ShardNumber shard = 0; shard < kShards; ++shard) {
      const auto holders = holders_of(shard, map, 2);
      ASSERT_EQ(holders.followers.size(), 1U);
      EXPECT_NE(map.find(*holders.primary)->host, map.find(holders.followers[0])->host);
      ++primaries[holders.primary->id];
    }
    // As evenly as without hosts.
    ASSERT_EQ(primaries.size(), map.servers.size());
    for (const auto& [id, count] : primaries) {
      EXPECT_NEAR(count, kShards / static_cast<double>(map.servers.size()), 150) << id;
    }
  }
}

TEST(ServerMap, AnyThatGoLeaveTheOthersInTheirOrder) {
  for (const auto& servers : {std::vector{2, 2}, {1, 3}, {3, 2, 1}}) {
    for (ShardNumber shard = 0; shard < 200; ++shard) {
      auto map = make_hosts(servers);
      // In any order of going, whoever is primary next had the copy.
      for (size_t i = shard; map.servers.size() > 1; i = i * 7 + 3) {
        const auto was = holders_of(shard, map, 2);
        go(map, i % map.servers.size());
        const auto is = holders_of(shard, map, 2);
        EXPECT_NE(was.role_of(*is.primary), ShardRole::kNone);
      }
    }
  }
}

TEST(ServerMap, OneThatComesTakesThePlaceOfOneAndMovesNobodyElse) {
  for (const bool known : {false, true}) {
    for (uint64_t seed = 0; seed < 600; ++seed) {
      auto map = make_hosts({3, 2, 2});
      for (uint64_t gone = 0; gone < seed % 4; ++gone)
        go(map, (seed / 4 + gone * 5) % map.servers.size());
      if (known && map.away.empty()) continue;
      const ServerPlace place =
          known ? map.away[0] : ServerPlace{"new", "host" + std::to_string(seed % 4)};
      map.servers.push_back(entry(place.id, 8, false, place.host));
      const ServerKey joiner = map.servers.back().key;
      auto after = map;
      after.servers.back().ready = true;
      std::erase_if(after.away, [&](const ServerPlace& one) { return one.id == place.id; });
      for (ShardNumber shard = 0; shard < 40; ++shard) {
        const auto was = holders_of(shard, map, 2);
        const auto is = holders_of(shard, after, 2);
        EXPECT_NE(was.role_of(*is.primary), ShardRole::kNone);
        EXPECT_NE(was.role_of(is.followers[0]), ShardRole::kNone);
        EXPECT_EQ(was.role_of(joiner) != ShardRole::kNone, is.role_of(joiner) != ShardRole::kNone);
      }
    }
  }
}

TEST(MapHistory, GivesWhatWasMissed) {
  MapHistory history;
  for (uint64_t epoch = 1; epoch <= MapHistory::kKept + 3; ++epoch) {
    ServerMap map;
    map.epoch = epoch;
    history.add(map);
  }
  const uint64_t newest = history.newest().epoch;
  const auto missed = history.since(newest - 2);
  ASSERT_TRUE(missed.ok());
  ASSERT_EQ(missed->size(), 2U);
  EXPECT_EQ((*missed)[0].epoch, newest - 1);
  EXPECT_TRUE(history.since(newest)->empty());
  EXPECT_TRUE(history.since(newest - MapHistory::kKept).ok());
  EXPECT_FALSE(history.since(newest - MapHistory::kKept - 1).ok());
}

}  // namespace
}  // namespace muster::ps
