#include "muster/track/run_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/track/temp_directory_testing.h"

namespace muster::track {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class RunEventsTest : public testing::Test {
 protected:
  std::unique_ptr<RunEventLog> open() {
    auto log = RunEventLog::open(*files_, path_, clock_);
    EXPECT_TRUE(log.ok());
    return std::move(log).value();
  }
  std::vector<RunEvent> read() {
    auto events = read_run_events(*files_, path_);
    EXPECT_TRUE(events.ok());
    return std::move(events).value();
  }
  TempDirectory directory_;
  const std::string path_ = directory_.path() + "/events.jsonl";
  std::unique_ptr<FileSystem> files_ = posix_file_system();
  FakeClock clock_{WallTime{std::chrono::seconds(1000)}};
};

TEST_F(RunEventsTest, RostersAddUp) {
  EXPECT_THAT(read(), IsEmpty());
  const auto log = open();
  log->write({{"event", "start"}, {"workers", 2}});
  log->write({{"event", "roster"},
              {"roster", 1},
              {"step", 0},
              {"all", true},
              {"members", {{"a", {{"lanes", "0-1"}, {"host", "h"}}}, {"b", {{"lanes", "2-3"}}}}}});
  clock_.advance(std::chrono::milliseconds(1500));
  log->write({{"event", "gone"}, {"worker", "b"}, {"cause", "exited"}, {"reason", "killed"}});
  log->write({{"event", "roster"},
              {"roster", 2},
              {"step", 7},
              {"reason", "b was killed"},
              {"removed", {"b"}},
              {"members", {{"a", {{"lanes", "0-3"}, {"host", "h"}}}}}});
  const auto events = read();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].fields.at("workers"), 2);
  EXPECT_DOUBLE_EQ(events[0].time, 1000);
  EXPECT_THAT(events[1].members, ElementsAre(Pair("a", RunEvent::Member{"0-1", "h"}),
                                             Pair("b", RunEvent::Member{"2-3", ""})));
  EXPECT_DOUBLE_EQ(events[2].time, 1001.5);
  EXPECT_EQ(events[2].worker, "b");
  EXPECT_EQ(events[2].cause, "exited");
  EXPECT_EQ(events[2].text, "killed");
  EXPECT_EQ(events[3].step, 7);
  EXPECT_THAT(events[3].members, ElementsAre(Pair("a", RunEvent::Member{"0-3", "h"})));
}

TEST_F(RunEventsTest, GoesOnBehindATornLineAndPassesOverWhatIsNoEvent) {
  ASSERT_TRUE(write_file_atomically(*files_, path_,
                                    "[1]\n{\"event\": \"note\"}\n{\"time\": 1}\n"
                                    "{\"time\": 2, \"event\": \"roster\", \"members\": [3],"
                                    " \"removed\": 4, \"roster\": \"x\"}\n{\"time\": 3, \"ev")
                  .ok());
  const auto log = open();
  log->write({{"event", "note"}, {"text", "again"}});
  log->write_last({{"event", "end"}});
  log->write({{"event", "gone"}, {"worker", "a"}});
  const auto events = read();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].kind, "end");
  EXPECT_EQ(events[0].kind, "roster");
  EXPECT_THAT(events[0].members, IsEmpty());
  EXPECT_EQ(events[1].text, "again");
}

TEST_F(RunEventsTest, TimesThatNoClockShowsAreNoEvents) {
  ASSERT_TRUE(write_file_atomically(*files_, path_,
                                    "{\"time\": 1e300, \"event\": \"start\"}\n"
                                    "{\"time\": -1, \"event\": \"start\"}\n"
                                    "{\"time\": 1e9, \"event\": \"note\"}\n")
                  .ok());
  const auto events = read();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, "note");
}

// Its line is cut off by an error of the disk; the next one is not lost with it.
TEST_F(RunEventsTest, AnErrorCostsOneEvent) {
  FaultInjectionFileSystem files;
  ASSERT_TRUE(files.create_directories("/run").ok());
  const auto log = RunEventLog::open(files, "/run/events.jsonl", clock_);
  ASSERT_TRUE(log.ok());
  (*log)->write({{"event", "start"}});
  files.fail_at(files.operations(), Fault::kOnce);
  (*log)->write({{"event", "note"}, {"text", "lost"}});
  (*log)->write({{"event", "note"}, {"text", "kept"}});
  const auto events = read_run_events(files, "/run/events.jsonl");
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2U);
  EXPECT_EQ((*events)[1].text, "kept");
  RunEventLog::discard(clock_)->write_last({{"event", "end"}});
}

TEST_F(RunEventsTest, RostersAreAppliedToThoseBefore) {
  std::map<std::string, RunEvent::Member> members = {{"x", {"0", "h"}}};
  RunEvent first;
  first.all = true;
  first.members = {{"a", {"0-1", "h"}}, {"b", {"2-3", "h"}}};
  apply_roster(first, members);
  EXPECT_EQ(members, first.members);
  RunEvent second;
  second.removed = {"b", "never"};
  second.members = {{"a", {"0-3", "h"}}};
  apply_roster(second, members);
  EXPECT_EQ(members, second.members);
}

}  // namespace
}  // namespace muster::track
