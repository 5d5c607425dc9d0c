#include "tools/muster-launch/status_text.h"

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> texts(const std::vector<std::string>& given) {
  std::vector<roster::EventLine> events;
  for (const auto& text : given) events.emplace_back().text = text;
  std::vector<std::string> kept;
  for (const auto& event : without_repeats(events)) kept.push_back(event.text);
  return kept;
}

TEST(StatusText, WhatTheNextRosterSaysTooIsLeftOut) {
  EXPECT_THAT(texts({"worker 1 was removed: it left", "roster 3: worker 1 was removed: it left"}),
              ElementsAre("roster 3: worker 1 was removed: it left"));
  EXPECT_THAT(texts({"worker 1 was removed", "worker 2 joins", "roster 3: worker 1 was removed"}),
              ElementsAre("worker 2 joins", "roster 3: worker 1 was removed"));
  EXPECT_THAT(
      texts({"worker 1 was removed", "roster 3: worker 2 joins", "roster 4: worker 1 was removed"}),
      ElementsAre("worker 1 was removed", "roster 3: worker 2 joins",
                  "roster 4: worker 1 was removed"));
  EXPECT_THAT(texts({"a"}), ElementsAre("a"));
  EXPECT_THAT(texts({}), ElementsAre());
}

ps::ServersStatus two_servers() {
  using Standing = ps::ServerStatus::Standing;
  ps::ServersStatus status{7, 2, 2, {}};
  status.servers.push_back(
      {{"server0", 1}, Standing::kReady, "10.0.0.1", "10.0.0.1:9", 41, 7, 12345, {}, {"server1"}});
  status.servers.push_back({{"server1", 2}, Standing::kJoining, "10.0.0.2", "", 42, 6, 9, {}, {}});
  return status;
}

TEST(StatusText, ServersAreShown) {
  const Console console(stdout, stderr, {});
  roster::StatusReport report;
  EXPECT_THAT(status_text(report, "a:1", {}, console), Not(HasSubstr("server")));
  EXPECT_TRUE(status_json(report, "a:1", {})["parameter_servers"].is_null());
  report.servers = "10.0.0.9:5";
  EXPECT_THAT(status_text(report, "a:1", {}, console), HasSubstr("10.0.0.9:5 does not answer"));
  const auto text = status_text(report, "a:1", two_servers(), console);
  EXPECT_THAT(text, HasSubstr("2 parameter servers, 1 ready, epoch 7"));
  EXPECT_THAT(text, HasSubstr("12,345"));
  EXPECT_THAT(text, HasSubstr("joining"));
  const auto json = status_json(report, "a:1", two_servers())["parameter_servers"];
  EXPECT_EQ(json["servers"][0]["rows"], 12345);
  EXPECT_EQ(json["servers"][0]["cannot_reach"][0], "server1");
  EXPECT_EQ(json["servers"][1]["state"], "joining");
  auto waiting = two_servers();
  waiting.epoch = 0;
  waiting.first = 3;
  EXPECT_THAT(status_text(report, "a:1", waiting, console), HasSubstr("2 of 3 have registered"));
}

TEST(StatusText, LanesThatFollowEachOtherAreOneRange) {
  EXPECT_EQ(lanes_text({0, 1, 2, 3, 6}), "0-3, 6");
  EXPECT_EQ(lanes_text({}), "");
}

}  // namespace
}  // namespace muster::cli
