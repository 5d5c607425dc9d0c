// Workers of several roles and rosters with several groups: two trainers and two servers, which
// form a group of all, one of the trainers and one of the servers.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/client.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/registrar.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<RoleOptions> trainers_and_servers() {
  std::vector<RoleOptions> roles(2);
  roles[0].groups = {"all", std::string(kTrainers)};
  roles[1].name = "server";
  roles[1].groups = {"all", "servers"};
  roles[1].computes_lanes = false;
  return roles;
}

std::vector<std::string> ids_of(const Roster& roster, std::string_view group) {
  std::vector<std::string> ids;
  for (const Member* member : roster.group(group)) ids.push_back(member->key.id);
  return ids;
}

class RolesTest : public testing::Test {
 protected:
  RolesTest() {
    options_.job = "job";
    options_.lanes = 4;
    options_.roles = trainers_and_servers();
    start();
  }
  void start() { registrar_ = std::make_unique<Registrar>(options_, now_); }
  void join(const std::string& id, const std::string& role, const Roster& held = {}) {
    JoinRequest request;
    request.key = {id, 1};
    request.job = "job";
    request.role = role;
    request.site = site_;

    request.held = held;
    request.highest = held.number;
    sessions_[id] = sessions_.size() + 1;
    registrar_->connected(sessions_[id]);
    registrar_->join(now_, sessions_[id], request);
  }
  // All members say that they are in the group of the present roster.
  void settle() {
    for (const Member& member : current().members) {
      Heartbeat beat;
      beat.sequence = ++beats_;
      beat.known = beat.group = current().number;
      registrar_->heartbeat(now_, sessions_.at(member.key.id), beat);
    }
  }
  void offer(const std::string& id, const std::string& group) {
    registrar_->offer_addresses(now_, sessions_.at(id), current().number, group, id + "/" + group);
  }
  template <typename T>
  std::vector<T> told(const std::string& id) {
    for (Outgoing& out : registrar_->take_outgoing()) all_.push_back(std::move(out));
    std::vector<T> result;
    for (const Outgoing& out : all_) {
      if (out.session != sessions_.at(id)) continue;
      if (const T* one = std::get_if<T>(out.message.get())) result.push_back(*one);
    }
    return result;
  }
  const Roster& current() const { return registrar_->state().current; }

  Moment now_{50s};
  Options options_;
  std::unique_ptr<Registrar> registrar_;
  std::map<std::string, SessionId> sessions_;
  std::vector<Outgoing> all_;
  uint64_t beats_ = 0;
  std::string site_;  // of those that join
};

class SitesTest : public RolesTest {
 protected:
  SitesTest() {
    options_.roles = std::vector<RoleOptions>(1);
    options_.site_workers = 3;
    start();
  }
  void join_from(const std::string& id, const std::string& site, const Roster& held = {}) {
    site_ = site;
    join(id, std::string(kTrainer), held);
    settle();
  }
  size_t lanes_of(const std::string& id) const {
    const Member* member = current().find({id, 1});
    return member != nullptr ? member->lanes.size() : 99;
  }
};

TEST_F(SitesTest, TheFirstOfASiteHasTheLanesOfAll) {
  join_from("a0", "a");
  EXPECT_EQ(lanes_of("a0"), 4);
  join_from("a1", "a");
  join_from("b0", "b");
  join_from("c", "");
  EXPECT_THAT(ids_of(current(), kTrainers), ElementsAre("a0", "a1", "b0", "c"));
  EXPECT_THAT(ids_of(current(), "site a"), ElementsAre("a0", "a1"));
  EXPECT_THAT(ids_of(current(), "site b"), ElementsAre("b0"));
  EXPECT_EQ(current().find({"c", 1})->site(), "");
  EXPECT_EQ(lanes_of("a0") + lanes_of("b0") + lanes_of("c"), 4);
  EXPECT_EQ(lanes_of("a1"), 0);

  EXPECT_TRUE(check_roster(current(), options_.lanes).ok());
}

TEST_F(SitesTest, AnotherOneLeadsWhenTheFirstIsLost) {
  join_from("a0", "a");
  join_from("a1", "a");
  join_from("b0", "b");
  registrar_->exited(now_, "a0", 0, "killed");
  EXPECT_THAT(ids_of(current(), "site a"), ElementsAre("a1"));
  EXPECT_EQ(lanes_of("a1"), 2);
  EXPECT_EQ(lanes_of("b0"), 2);
}

TEST_F(SitesTest, ThereIsRoomForAsManySitesAsLanesAndSoManyAtEach) {
  for (const char* id : {"a0", "a1", "a2", "a3"}) join_from(id, "a");
  EXPECT_THAT(ids_of(current(), kTrainers), ElementsAre("a0", "a1", "a2"));
  for (const char* id : {"b", "c", "d"}) join_from(id, "");
  join_from("e", "e");
  EXPECT_THAT(ids_of(current(), kTrainers), ElementsAre("a0", "a1", "a2", "b", "c", "d"));
}

TEST_F(SitesTest, WhereLanesAreNotSharedSitesDoNotMatter) {
  options_.site_workers = 1;
  start();
  join_from("a0", "a");
  join_from("a1", "a");
  EXPECT_EQ(lanes_of("a0"), 2);
  EXPECT_EQ(lanes_of("a1"), 2);
  EXPECT_EQ(current().find({"a0", 1})->groups.size(), 1);
}

TEST_F(SitesTest, ANewCoordinatorTakesThemOver) {
  join_from("a0", "a");
  join_from("a1", "a");
  const Roster held = current();
  options_.fresh = false;
  options_.term += 1;
  start();
  site_ = "a";
  for (const char* id : {"a0", "a1"}) join(id, std::string(kTrainer), held);
  EXPECT_THAT(told<Refused>("a0"), IsEmpty());
  EXPECT_THAT(ids_of(current(), "site a"), ElementsAre("a0", "a1"));
}

TEST_F(RolesTest, OnlyTrainersComputeLanesAndAreCounted) {
  options_.max_workers = 2;
  options_.min_workers = 2;
  start();
  join("s0", "server");
  EXPECT_TRUE(current().waiting) << "a server is no trainer";
  settle();
  join("t0", "trainer");
  EXPECT_TRUE(current().waiting);
  settle();
  join("t1", "trainer");
  EXPECT_FALSE(current().waiting);
  settle();
  join("t2", "trainer");
  join("s1", "server");
  EXPECT_THAT(ids_of(current(), "all"), ElementsAre("s0", "t0", "t1", "s1")) << "t2 is a spare";
  EXPECT_THAT(ids_of(current(), kTrainers), ElementsAre("t0", "t1"));
  EXPECT_THAT(ids_of(current(), "servers"), ElementsAre("s0", "s1"));
  for (const Member& member : current().members) {
    EXPECT_THAT(member.lanes, SizeIs(member.role == "server" ? 0 : 2)) << member.key.id;
  }
  EXPECT_TRUE(check_roster(current(), options_.lanes).ok());
}

TEST_F(RolesTest, ARoleThatTheJobDoesNotHaveIsRefused) {
  join("x", "oracle");
  ASSERT_THAT(told<Refused>("x"), SizeIs(1));
  EXPECT_EQ(told<Refused>("x")[0].reason, "job 'job' has no workers with the role 'oracle'");
}

TEST_F(RolesTest, EachGroupExchangesItsOwnAddresses) {
  join("t0", "trainer");
  settle();
  join("s0", "server");
  offer("t0", std::string(kTrainers));
  ASSERT_THAT(told<Addresses>("t0"), SizeIs(1)) << "alone in its group";
  EXPECT_EQ(told<Addresses>("t0")[0].group, kTrainers);
  EXPECT_EQ(registrar_->state().workers.at("t0").awaits_addresses, 0) << "it has them";
  offer("t0", "all");
  EXPECT_EQ(registrar_->state().workers.at("t0").awaits_addresses, current().number);
  EXPECT_THAT(told<Addresses>("t0"), SizeIs(1));
  offer("s0", "all");
  for (const char* id : {"t0", "s0"}) {
    const Addresses last = told<Addresses>(id).back();
    EXPECT_EQ(last.group, "all");
    ASSERT_TRUE(last.blobs);
    EXPECT_THAT(*last.blobs, ElementsAre("t0/all", "s0/all"));
  }
  EXPECT_EQ(registrar_->state().workers.at("t0").awaits_addresses, 0);
  EXPECT_EQ(registrar_->state().workers.at("t0").addressed, now_);
}

TEST_F(RolesTest, AddressesForAGroupOfOthersAreRefused) {
  join("t0", "trainer");
  for (const char* group : {"servers", "nobody"}) {
    offer("t0", group);
    const Addresses last = told<Addresses>("t0").back();
    EXPECT_EQ(last.group, group);
    EXPECT_FALSE(last.blobs);
    EXPECT_FALSE(last.superseded);
    EXPECT_THAT(last.reason, HasSubstr("is not in group"));
  }
}

TEST_F(RolesTest, AllGroupsOfAReplacedRosterFail) {
  join("t0", "trainer");
  settle();
  join("t1", "trainer");
  const RosterNumber old = current().number;
  offer("t0", std::string(kTrainers));
  offer("t0", "all");
  registrar_->exited(now_, "t1", 0, "exited");
  const auto answers = told<Addresses>("t0");
  ASSERT_THAT(answers, SizeIs(2));
  for (const Addresses& answer : answers) {
    EXPECT_EQ(answer.roster, old);
    EXPECT_TRUE(answer.superseded);
  }
  EXPECT_NE(answers[0].group, answers[1].group);
}

// The one that does not come to a group is removed, and not those that wait for it there, even if
// they have not begun to form their other groups.
TEST_F(RolesTest, WhoWaitsInItsFirstGroupIsNotTakenForHung) {
  options_.hang_timeout = 10s;
  start();
  join("t0", "trainer");
  settle();
  join("t1", "trainer");
  settle();
  join("s0", "server");
  const Moment began = now_;
  offer("t0", "all");
  offer("t1", "all");
  while (current().has({"s0", 1}) && now_ < began + 30s) {
    now_ += 400ms;
    for (const char* id : {"t0", "t1", "s0"}) {
      Heartbeat beat;
      beat.sequence = ++beats_;
      beat.known = current().number;
      beat.activity = Activity::kForming;
      beat.progress = 7;
      beat.still = now_ - began;
      registrar_->heartbeat(now_, sessions_.at(id), beat);
    }
    registrar_->tick(now_);
  }
  EXPECT_FALSE(current().has({"s0", 1}));
  EXPECT_LE(now_, began + options_.hang_timeout + 1s);
  EXPECT_THAT(ids_of(current(), "all"), ElementsAre("t0", "t1"));
}

TEST_F(RolesTest, ARestartedCoordinatorAdoptsNoRosterWithOtherGroups) {
  join("t0", "trainer");
  Roster held = current();
  options_.fresh = false;
  options_.term = 2;
  start();
  held.members[0].groups = {"servers"};
  join("t0", "trainer", held);
  ASSERT_THAT(told<Refused>("t0"), SizeIs(1));
  EXPECT_THAT(told<Refused>("t0")[0].reason, HasSubstr("its groups are not those of this job"));
}

TEST(RosterGroups, AMemberIsInAGroupAndInNoneTwice) {
  Roster roster;
  roster.members.resize(1);
  roster.members[0].key = {"a", 1};
  roster.members[0].lanes = {0};
  EXPECT_TRUE(check_roster(roster, 1).ok());
  EXPECT_THAT(roster.group(kTrainers), SizeIs(1));
  EXPECT_THAT(roster.group("servers"), IsEmpty());
  const uint64_t before = roster.checksum();
  roster.members[0].groups = {"a", "a"};
  EXPECT_FALSE(check_roster(roster, 1).ok());
  roster.members[0].groups.clear();
  EXPECT_FALSE(check_roster(roster, 1).ok());
  EXPECT_NE(roster.checksum(), before);
}

// The same over real connections: each worker forms its groups in the order of the roster.
TEST(RolesOverConnections, TrainersAndServersFormTheirGroups) {
  const SystemClock clock;
  CoordinatorOptions options;
  options.roster.job = "job";
  options.roster.lanes = 2;
  options.roster.roles = trainers_and_servers();
  options.roster.expected = 2;
  options.roster.term = term_from_clock(clock);
  const auto coordinator = Coordinator::start(options, clock).value();
  // Servers first: the first roster waits for the trainers.
  const std::vector<std::string> ids = {"s0", "s1", "t0", "t1"};
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::string& id : ids) {
    ClientOptions client;
    client.addresses = {coordinator->address()};
    client.follower.join.job = "job";
    client.follower.join.key.id = id;
    client.follower.join.role = id[0] == 's' ? "server" : "trainer";
    clients.push_back(Client::start(std::move(client), clock).value());
  }
  std::map<std::string, std::map<std::string, std::vector<std::string>>> got;  // by id and group
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (auto& client : clients) {
    threads.emplace_back([&] {
      const std::string id = client->key().id;
      // A worker may be told of a first roster without the last one that joins: until all four are
      // in the same one, exchanges of the earlier ones fail.
      for (int attempt = 0; attempt < 100; ++attempt) {
        const Instruction next = client->next(30s);
        if (next.kind != Instruction::Kind::kForm) continue;
        std::map<std::string, std::vector<std::string>> mine;
        for (const std::string& group : next.roster->find(client->key())->groups) {
          auto blobs =
              client->exchange(next.roster->number, group, fmt::format("{}/{}", id, group));
          if (!blobs.ok()) break;
          mine[group] = *blobs;
        }
        if (mine.size() < 2 || mine["all"].size() < 4) {
          client->failed(next.roster->number, "", "not all are there");
          continue;
        }
        client->formed(next.roster->number);
        const std::lock_guard lock(mutex);
        got[id] = mine;
        return;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_THAT(got, SizeIs(4));
  for (const char* group : {"all", "trainers", "servers"}) {
    std::vector<std::string> expected;
    for (const std::string& id : ids_of(coordinator->status().roster, group)) {
      expected.push_back(id + "/" + group);
    }
    EXPECT_THAT(expected, SizeIs(group == std::string("all") ? 4 : 2));
    for (const auto& [id, mine] : got) {
      if (mine.contains(group)) {
        EXPECT_EQ(mine.at(group), expected) << id;
      }
    }
  }
  EXPECT_TRUE(got["t0"].contains("trainers") && !got["t0"].contains("servers"));
  EXPECT_TRUE(got["s0"].contains("servers") && !got["s0"].contains("trainers"));
}

}  // namespace
}  // namespace muster::roster
