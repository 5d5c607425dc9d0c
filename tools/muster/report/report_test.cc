#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/muster/report/chart.h"
#include "tools/muster/report/html.h"
#include "tools/muster/report/page.h"
#include "tools/muster/report/timeline.h"

namespace muster::cli::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using track::RunEvent;

TEST(Html, EscapesWhatCouldBeginOrEndSomething) {
  EXPECT_EQ(escaped("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(escaped("größer\n\tok"), "größer\n\tok");
  EXPECT_EQ(escaped(std::string("a\0b\x1b[31m\x7f", 9)), "a�b�[31m�");
  EXPECT_EQ(escaped("\xff\xfe<\xc3"), "��&lt;�");
  EXPECT_EQ(escaped("\xed\xa0\x80"), "���") << "half of a surrogate pair";
  EXPECT_EQ(escaped("run\u202egnp.\u2066x"), "run�gnp.�x") << "text that runs backwards";
  EXPECT_EQ(escaped(""), "");
}

TEST(Html, Durations) {
  EXPECT_EQ(duration_text(0.0123), "12.3 ms");
  EXPECT_EQ(duration_text(5), "5 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(duration_text(200'000), "2 d 07 h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(1e300), "?");
}

TEST(StepTimes, LeaveOutWhatIsNotKnown) {
  const std::vector<track::Curve> curves = {
      {"seconds", {{10, 0.2}, {20, 0}, {30, 0.1}, {40, 0.9}}, {}},
      {"waited", {{10, 0.1}, {20, 5}, {30, 0}, {40, 0.2}}, {}}};
  const auto times = times_of(curves);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->count, 3U);
  EXPECT_DOUBLE_EQ(times->median, 0.2);
  EXPECT_DOUBLE_EQ(times->longest, 0.9);
  EXPECT_EQ(times->longest_step, 40);
  EXPECT_DOUBLE_EQ(times->total, 1.2);
  EXPECT_DOUBLE_EQ(times->waited.value_or(-1), 0.1 + 0.2);
  EXPECT_FALSE(times_of({}));
}

TEST(Chart, KeepsThePeakOfAMillionSteps) {
  track::Curve curve{.metric = "loss", .points = {}, .not_finite = {}};
  for (int64_t step = 1; step <= 1'000'000; ++step) curve.points.push_back({step, 1.0});
  curve.points[654'320].value = 7;
  const auto html = chart("loss", {{"a", 0, &curve}});
  EXPECT_LT(html.size(), 100'000U);
  EXPECT_THAT(html, HasSubstr("L654.3 125")) << "7, on an axis from 0 to 8";
  EXPECT_THAT(html, HasSubstr("7.0000 <span class=\"at\">step&nbsp;654,321"));
}

RunEvent made(double time, const std::string& kind) {
  RunEvent event;
  event.time = time;
  event.kind = kind;
  return event;
}

RunEvent start(double time, int workers) {
  RunEvent event = made(time, "start");
  event.fields = {{"event", "start"}, {"command", "train"}, {"workers", workers}};
  return event;
}

RunEvent roster(double time, int64_t number, std::map<std::string, RunEvent::Member> members,
                std::vector<std::string> removed = {}) {
  RunEvent event = made(time, "roster");
  event.roster = number;
  event.members = std::move(members);
  event.removed = std::move(removed);
  return event;
}

RunEvent gone(double time, const std::string& worker, const std::string& cause = "exited") {
  RunEvent event = made(time, "gone");
  event.worker = worker;
  event.cause = cause;
  event.text = "was killed by SIGKILL";
  return event;
}

RunEvent end(double time, nlohmann::json fields) {
  RunEvent event = made(time, "end");
  event.fields = std::move(fields);
  return event;
}

TEST(History, OfSeveralWorkers) {
  const std::vector<RunEvent> events = {start(100, 2),
                                        roster(101, 1, {{"a", {"0-1", "h"}}, {"b", {"2-3", "h"}}}),
                                        gone(105, "b"),
                                        roster(105, 2, {{"a", {"0-3", "h"}}}, {"b"}),
                                        roster(108, 3, {{"c", {"", "h"}}}),
                                        end(110, {{"finished", true}})};
  const auto history = history_of(events, {});
  ASSERT_EQ(history.attempts.size(), 1U);
  EXPECT_TRUE(history.attempts[0].ended);
  EXPECT_EQ(history.rosters, 3U);
  EXPECT_EQ(history.faults, 1U);
  ASSERT_EQ(history.workers.size(), 3U);
  const auto& a = history.workers[0];
  ASSERT_EQ(a.stretches.size(), 2U) << "rosters 2 and 3 give it the same lanes";
  EXPECT_EQ(a.stretches[0].lanes, "0-1");
  EXPECT_DOUBLE_EQ(a.stretches[0].end, 105);
  EXPECT_EQ(a.stretches[1].lane_count, 4U);
  EXPECT_EQ(a.stretches[1].last_roster, 3);
  EXPECT_DOUBLE_EQ(a.stretches[1].end, 110);
  const auto& b = history.workers[1];
  EXPECT_DOUBLE_EQ(b.stretches[0].end, 105);
  ASSERT_EQ(b.marks.size(), 1U);
  EXPECT_FALSE(b.marks[0].planned);
  const auto html = timeline(history);
  EXPECT_THAT(html, HasSubstr("<title>b: was killed by SIGKILL"));
  EXPECT_THAT(html, HasSubstr("worker a: lanes 0-3, rosters 2 to 3, for 5 s"));
}

TEST(History, OfOneWorkerThatIsKilledAndResumed) {
  const std::vector<RunEvent> events = {
      start(100, 1), end(104, {{"finished", false}, {"stopped_by", 9}}), start(5000, 1),
      start(9000, 1), end(9001, {{"finished", true}})};
  const auto history = history_of(events, {.times = {101, 103, 5002, 9000.5}, .all_lanes = "0-7"});
  ASSERT_EQ(history.attempts.size(), 3U);
  EXPECT_DOUBLE_EQ(history.attempts[1].end, 5002) << "from the metrics: its end is not recorded";
  EXPECT_FALSE(history.attempts[1].ended);
  ASSERT_EQ(history.workers.size(), 1U);
  EXPECT_EQ(history.workers[0].stretches.size(), 3U);
  EXPECT_EQ(history.workers[0].stretches[0].lane_count, 8U);
  EXPECT_EQ(history.faults, 2U);
  const auto html = timeline(history);
  EXPECT_THAT(html, HasSubstr("killed by SIGKILL"));
  EXPECT_THAT(html, HasSubstr("stood still for 1 h 21 min, 1 h 06 min"));
}

// Between two rosters: nothing differs in the second one.
TEST(History, OfAWorkerThatIsReplacedAtOnce) {
  const auto history =
      history_of({start(100, 2), roster(101, 1, {{"a", {"0", "h"}}, {"b", {"1", "h"}}}),
                  gone(103, "b"), roster(104, 2, {}), end(110, {{"finished", true}})},
                 {});
  const auto& b = history.workers.at(1);
  ASSERT_EQ(b.stretches.size(), 2U);
  EXPECT_DOUBLE_EQ(b.stretches[0].end, 103);
  EXPECT_DOUBLE_EQ(b.stretches[1].begin, 104);
  EXPECT_DOUBLE_EQ(b.stretches[1].end, 110);
  EXPECT_EQ(history.workers[0].stretches.size(), 1U);
  EXPECT_EQ(history.workers[0].stretches[0].last_roster, 2);
}

RunEvent left(double time, const std::string& worker, const std::string& how) {
  RunEvent event = made(time, "exit");
  event.worker = worker;
  event.text = how;
  return event;
}

// A worker that is asked to end breaks its connections too: this is no fault.
TEST(History, TellsTheEndOfAProcessFromItsLoss) {
  auto broken = gone(103, "a", "disconnected");
  broken.text = "its connection broke";
  auto other = broken;
  other.worker = "b";
  const auto history =
      history_of({start(100, 2), roster(101, 1, {{"a", {"0", "h"}}, {"b", {"1", "h"}}}),
                  left(102, "b", "was killed by SIGKILL"), other, broken,
                  left(104, "a", "left with exit code 130 (interrupted)"),
                  end(105, {{"finished", false}, {"stopped_by", 2}})},
                 {});
  EXPECT_EQ(history.faults, 1U);
  EXPECT_TRUE(history.workers.at(0).marks.at(0).planned);
  EXPECT_EQ(history.workers[1].marks.at(0).text,
            "its connection broke; its process was killed by SIGKILL");
  const auto html = fault_list(history);
  EXPECT_THAT(html, HasSubstr("<li>after 3 s, b: its connection broke; its process was killed by"));
  EXPECT_THAT(html, Not(HasSubstr("<li>after 3 s, a")));
}

// How a process ends that was started since explains nothing of what happened to the one before.
TEST(History, AnExitExplainsOneLoss) {
  auto silent = gone(103, "b", "lease expired");
  silent.text = "nothing was heard from it";
  auto killed = gone(105, "b", "exited");
  killed.text = "was killed by SIGKILL";
  const RunEvent both = roster(101, 1, {{"a", {"0", "h"}}, {"b", {"1", "h"}}});
  const auto back = [](double time, int64_t number) {
    return roster(time, number, {{"a", {"0", "h"}}, {"b", {"1", "h"}}});
  };
  const auto history =
      history_of({start(100, 2), both, silent, roster(103, 2, {{"a", {"0-1", "h"}}}, {"b"}),
                  back(104, 3), left(105, "b", "was killed by SIGKILL"), killed,
                  roster(105, 4, {{"a", {"0-1", "h"}}}, {"b"}), back(106, 5),
                  left(107, "b", "left"), end(107, {{"finished", true}})},
                 {});
  EXPECT_EQ(history.faults, 2U);
  const auto& marks = history.workers.at(1).marks;
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_EQ(marks[0].text, "nothing was heard from it");
  EXPECT_EQ(marks[1].text, "was killed by SIGKILL");
  EXPECT_FALSE(marks[1].planned);
}

TEST(History, SaysWhyAttemptsOfSeveralWorkersEnded) {
  const auto one = roster(101, 1, {{"a", {"0-1", "h"}}});
  auto failed = end(320, {{"finished", false}, {"reason", "no memory"}});
  failed.text = "no memory";
  const auto history =
      history_of({start(100, 2), one, start(200, 2), one,
                  end(210, {{"finished", false}, {"stopped_by", 2}}), start(300, 2), one, failed},
                 {});
  ASSERT_EQ(history.launcher.size(), 3U);
  EXPECT_THAT(history.launcher[0].text, HasSubstr("ended without a record"));
  EXPECT_EQ(history.launcher[1].text, "stopped by SIGINT");
  EXPECT_TRUE(history.launcher[1].planned);
  EXPECT_EQ(history.launcher[2].text, "failed: no memory");
  EXPECT_EQ(history.faults, 2U);
  EXPECT_THAT(timeline(history), HasSubstr(">launcher</div>"));
}

// Its workers train on, and the next one adopts them.
TEST(History, ACoordinatorThatEndsDoesNotEndTheRun) {
  auto coordinator = start(100, 0);
  coordinator.fields["command"] = "coordinator";
  auto next = coordinator;
  next.time = 150;
  auto adopted = roster(152, 1, {{"a", {"0-1", "h"}}});
  adopted.all = true;
  const auto history = history_of({coordinator, roster(101, 1, {{"a", {"0-1", "h"}}}),
                                   end(110, {{"finished", false}, {"stopped_by", 15}}), next,
                                   adopted, end(200, {{"finished", true}})},
                                  {.times = {105, 149}, .all_lanes = ""});
  EXPECT_EQ(history.faults, 0U);
  ASSERT_EQ(history.workers.size(), 1U);
  ASSERT_EQ(history.workers[0].stretches.size(), 2U);
  EXPECT_DOUBLE_EQ(history.workers[0].stretches[0].end, 149) << "the metrics say so";
  EXPECT_DOUBLE_EQ(history.workers[0].stretches[1].begin, 152);
}

TEST(History, AClockThatIsSetBackMovesNothingBack) {
  const auto history = history_of(
      {start(1000, 2), roster(1001, 1, {{"a", {"0", "h"}}, {"b", {"1", "h"}}}), gone(990, "b"),
       end(1010, {{"finished", false}, {"stopped_by", 15}}), start(500, 2),
       roster(501, 1, {{"a", {"0-1", "h"}}}), end(505, {{"finished", true}})},
      {});
  ASSERT_EQ(history.attempts.size(), 2U);
  EXPECT_DOUBLE_EQ(history.attempts[1].started, 500);
  EXPECT_DOUBLE_EQ(history.attempts[1].begin, 1010);
  EXPECT_DOUBLE_EQ(history.attempts[1].end, 1015);
  EXPECT_DOUBLE_EQ(history.workers[1].marks[0].time, 1001);
  double last = 0;
  for (const auto& stretch : history.workers[0].stretches) {
    EXPECT_GE(stretch.begin, last);
    EXPECT_GE(stretch.end, stretch.begin);
    last = stretch.end;
  }
}

TEST(Timeline, OfHundredsOfWorkersAndTensOfThousandsOfRostersIsSmall) {
  std::vector<RunEvent> events = {start(0, 300)};
  std::map<std::string, RunEvent::Member> members;
  for (int i = 0; i < 300; ++i) members["w" + std::to_string(i)] = {std::to_string(i), "h"};
  events.push_back(roster(1, 1, members));
  for (int i = 2; i <= 30'000; ++i) {
    const std::string id = "w" + std::to_string(i % 300);
    events.push_back(roster(10.0 * i, i, {{id, {std::to_string(i), "h"}}}));
  }
  events.push_back(gone(299'999, "w299"));
  events.push_back(end(300'001, {{"finished", true}}));
  const auto history = history_of(events, {});
  EXPECT_EQ(history.rosters, 30'000U);
  EXPECT_EQ(history.workers.at(2).id, "w2") << "before w10";
  const auto html = timeline(history);
  EXPECT_LT(html.size(), 3'000'000U);
  // Not HasSubstr, which would print all of it.
  EXPECT_NE(html.find("<title>w299: was killed by SIGKILL"), html.npos) << "faults are drawn";
  EXPECT_NE(html.find("236 more workers are not drawn"), html.npos);
  EXPECT_LT(event_table(events).size(), 200'000U);
}

TEST(Timeline, DrawsAsOneWhatCannotBeToldApart) {
  std::vector<RunEvent> events = {start(0, 1), roster(0, 1, {{"a", {"0", "h"}}})};
  for (int i = 0; i < 50; ++i) {
    events.push_back(roster(500 + 0.01 * i, 2 + i, {{"a", {std::to_string(i), "h"}}}));
    events.push_back(gone(500 + 0.01 * i, "a"));
  }
  events.push_back(end(1000, {{"finished", true}}));
  const auto html = timeline(history_of(events, {}));
  EXPECT_THAT(html, HasSubstr("(and 49 more here)"));
  EXPECT_THAT(html, HasSubstr("worker a: 49 changes within 480 ms"));
}

TEST(History, OfARunThatGoesOn) {
  const auto history =
      history_of({start(100, 1)}, {.times = {130}, .all_lanes = "", .running = true});
  EXPECT_EQ(history.faults, 0U);
  EXPECT_DOUBLE_EQ(history.attempts.at(0).end, 130);
  EXPECT_TRUE(history_of({}, {}).attempts.empty());
}

TEST(Page, HasAllSectionsOfARunThatHasNothing) {
  RunReport run;
  run.title = run.facts.name = "<script>alert(1)</script>";
  const auto html = page({run, run}, "now");
  for (const char* id :
       {"summary", "curves", "times", "workers", "audit", "data", "job", "environment"}) {
    EXPECT_THAT(html, HasSubstr(fmt::format("<section id=\"{}\"", id)));
  }
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html.substr(0, 1000), HasSubstr(kGenerator));
}

}  // namespace
}  // namespace muster::cli::report
