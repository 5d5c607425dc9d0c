#include "tools/muster-launch/roster_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/clock.h"
#include "muster/track/temp_directory_testing.h"

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::Pair;
using Member = track::RunEvent::Member;

roster::Issued issued(uint64_t number, uint64_t step, std::vector<roster::Member> members) {
  auto roster = std::make_shared<roster::Roster>();
  roster->number = number;
  roster->members = std::move(members);
  roster->reason = "because";
  return {roster, step};
}

roster::Member member(const std::string& id, std::vector<int32_t> lanes) {
  roster::Member made;
  made.key.id = id;
  made.host = "here";
  made.lanes = std::move(lanes);
  return made;
}

TEST(RosterEvents, AreReadAsTheyWere) {
  const track::TempDirectory directory;
  const auto files = posix_file_system();
  const FakeClock clock;
  const std::string path = directory.path() + "/events.jsonl";
  const auto log = track::RunEventLog::open(*files, path, clock);
  ASSERT_TRUE(log.ok());
  RosterEvents events(**log);
  events.event({{}, 0, "worker x is refused: it rounds differently"});
  events.roster(issued(1, 0, {member("a", {0, 1}), member("b", {2, 3})}));
  events.event({{}, 1, "roster 1: because"});
  events.event({{}, 1, "worker b was removed: killed by signal 9"});
  roster::Gone gone;
  gone.key = {"b", 7};
  gone.reason = "killed by signal 9";
  gone.cause = roster::RemovalCause::kExited;
  events.gone(gone);
  events.roster(issued(2, 30, {member("a", {0, 1, 2, 3})}));
  events.roster(issued(3, 40, {member("a", {0, 1}), member("c", {2, 3})}));
  // A process that replaces another has its lanes.
  auto replaced = member("c", {2, 3});
  replaced.key.incarnation = 9;
  events.roster(issued(4, 50, {member("a", {0, 1}), replaced}));

  const auto read = track::read_run_events(*files, path);
  ASSERT_TRUE(read.ok());
  std::vector<std::string> kinds;
  for (const auto& event : *read) kinds.push_back(event.kind);
  ASSERT_THAT(kinds, ElementsAre("note", "roster", "gone", "roster", "roster", "roster"));
  EXPECT_THAT((*read)[1].members,
              ElementsAre(Pair("a", Member{"0-1", "here"}), Pair("b", Member{"2-3", "here"})));
  EXPECT_EQ((*read)[2].worker, "b");
  EXPECT_EQ((*read)[2].cause, roster::removal_cause_name(roster::RemovalCause::kExited));
  EXPECT_THAT((*read)[3].members, ElementsAre(Pair("a", Member{"0-3", "here"})));
  EXPECT_EQ((*read)[3].step, 30);
  EXPECT_EQ((*read)[3].text, "because");
  EXPECT_THAT((*read)[4].members,
              ElementsAre(Pair("a", Member{"0-1", "here"}), Pair("c", Member{"2-3", "here"})));
  EXPECT_THAT((*read)[3].removed, ElementsAre("b"));
  EXPECT_THAT((*read)[5].members, ElementsAre(Pair("c", Member{"2-3", "here"})));
  EXPECT_TRUE((*read)[1].all);
}

// In the words that the coordinator really uses.
TEST(RosterEvents, NothingIsToldTwice) {
  const track::TempDirectory directory;
  const auto files = posix_file_system();
  const FakeClock clock;
  const std::string path = directory.path() + "/events.jsonl";
  const auto log = track::RunEventLog::open(*files, path, clock);
  ASSERT_TRUE(log.ok());
  RosterEvents events(**log);

  roster::Options options;
  options.job = "job";
  options.lanes = 4;
  options.lease = std::chrono::minutes(1);
  Moment now = clock.now();
  roster::Registrar registrar(options, now);
  roster::SessionId session = 0;
  for (const std::string id : {"a", "b"}) {
    roster::JoinRequest request;
    request.key = {id, 7};
    request.job = "job";
    registrar.connected(++session);
    registrar.join(now, session, request);
  }
  now += options.gather + std::chrono::seconds(1);
  registrar.tick(now);
  registrar.exited(now, "b", 0, "was killed by SIGKILL");
  for (const auto& one : registrar.take_gone()) events.gone(one);
  for (const auto& one : registrar.take_new_events()) events.event(one);
  for (const auto& one : registrar.take_issued()) events.roster(one);

  const auto read = track::read_run_events(*files, path);
  ASSERT_TRUE(read.ok());
  size_t rosters = 0;
  size_t gone = 0;
  for (const auto& event : *read) {
    if (event.kind == "roster") ++rosters;
    if (event.kind == "gone") ++gone;
    EXPECT_NE(event.kind, "note") << event.text;
  }
  EXPECT_GE(rosters, 1U);
  EXPECT_EQ(gone, 1U);
}

}  // namespace
}  // namespace muster::cli
