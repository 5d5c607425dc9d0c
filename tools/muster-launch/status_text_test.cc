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

ps::ServerStatus server(const std::string& id, ps::ServerStatus::Standing standing) {
  ps::ServerStatus status;
  status.key = {id, 1};
  status.standing = standing;
  return status;
}

ps::ServersStatus two_servers() {
  using Standing = ps::ServerStatus::Standing;
  auto first = server("server0", Standing::kReady);
  first.host = "10.0.0.1";
  first.address = "10.0.0.1:9";
  first.process = 41;
  first.entered = 7;
  first.rows = 12345;
  first.unreachable = {"server1"};
  auto second = server("server1", Standing::kJoining);
  second.key.incarnation = 2;
  second.host = "10.0.0.2";
  second.process = 42;
  second.entered = 6;
  second.rows = 9;
  return {7, 2, 2, {std::move(first), std::move(second)}};
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
