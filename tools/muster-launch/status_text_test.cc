#include "tools/muster-launch/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

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

TEST(StatusText, LanesThatFollowEachOtherAreOneRange) {
  EXPECT_EQ(lanes_text({0, 1, 2, 3, 6}), "0-3, 6");
  EXPECT_EQ(lanes_text({}), "");
}

}  // namespace
}  // namespace muster::cli
