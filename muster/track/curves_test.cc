#include "muster/track/curves.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/track/temp_directory_testing.h"

namespace muster::track {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names(const std::vector<Curve>& curves) {
  std::vector<std::string> all;
  for (const auto& curve : curves) all.push_back(curve.metric);
  return all;
}

TEST(Curves, AreTheNumbersOfTheRecords) {
  Metrics metrics;
  metrics.records = {
      {{"step", 1}, {"pass", 0.5}, {"lr", 0.1}, {"loss", 2.0}, {"samples", 8}, {"time", 9.0}},
      {{"step", 1}, {"test", {{"accuracy", 0.5}, {"note", "text"}}}},
      {{"step", 2}, {"lr", 0.1}, {"loss", nullptr}, {"rollback", 1}},
      {{"step", 2}, {"links", {{"rate", 1.0}}}},
      {{"step", 3}, {"lr", 0.2}, {"loss", 1.0}, {"test", 7}}};
  const auto curves = curves_of(metrics);
  EXPECT_THAT(names(curves), ElementsAre("loss", "lr", "test/accuracy"));
  EXPECT_THAT(curves[0].points, ElementsAre(Point{1, 2.0}));
  EXPECT_THAT(curves[0].not_finite, ElementsAre(2));
  EXPECT_THAT(curves[1].points, ElementsAre(Point{1, 0.1}, Point{2, 0.1}));
  EXPECT_THAT(curves[2].points, ElementsAre(Point{1, 0.5}));
  EXPECT_THAT(curves_of({}), IsEmpty());
}

TEST(Curves, OfAFileAreThoseOfItsRecords) {
  const TempDirectory directory;
  const auto files = posix_file_system();
  const std::string path = directory.path() + "/metrics.jsonl";
  EXPECT_THAT(read_curves(*files, path).value(), IsEmpty());
  // Step 2 is written twice; step 3 is computed again after a rollback, and step 4 never is. What
  // a worker writes late that has not heard of the rollback does not count. The last line is torn.
  ASSERT_TRUE(write_file_atomically(*files, path,
                                    "{\"step\": 1, \"loss\": 1.0}\n{\"step\": 2, \"loss\": 2.0}\n"
                                    "{\"step\": 2, \"loss\": 2.0}\n{\"step\": 3, \"loss\": 3.0}\n"
                                    "{\"step\": 4, \"loss\": null, \"gone\": 1}\n"
                                    "{\"step\": 4, \"test\": {\"loss\": 4.0}}\n"
                                    "{\"step\": 3, \"loss\": 3.5, \"rollback\": 1}\n"
                                    "{\"step\": 4, \"loss\": 4.0}\n{\"step\": 5, \"lo")
                  .ok());
  const auto curves = read_curves(*files, path).value();
  ASSERT_THAT(names(curves), ElementsAre("loss"));
  EXPECT_THAT(curves[0].points, ElementsAre(Point{1, 1.0}, Point{2, 2.0}, Point{3, 3.5}));
  EXPECT_THAT(curves[0].not_finite, IsEmpty());
  const auto metrics = read_metrics(*files, path).value();
  EXPECT_EQ(metrics.skipped, 1);
  EXPECT_EQ(curves_of(metrics)[0].points, curves[0].points);
}

TEST(Thinned, KeepsPeaksAndEnds) {
  std::vector<Point> points;
  for (int64_t step = 1; step <= 100'000; ++step) {
    points.push_back({step, std::sin(static_cast<double>(step) / 1000)});
  }
  points[54'321].value = 1000;
  points[12'345].value = -1000;
  const auto kept = thinned(points, 100);
  EXPECT_LE(kept.size(), 404U);
  EXPECT_EQ(kept.front(), points.front());
  EXPECT_EQ(kept.back(), points.back());
  EXPECT_THAT(kept, testing::Contains(points[54'321]));
  EXPECT_THAT(kept, testing::Contains(points[12'345]));
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &Point::step));
  EXPECT_EQ(thinned(kept, 101), kept) << "few points stay";
}

TEST(Thinned, LeavesHolesAndRepeatedStepsAlone) {
  std::vector<Point> points;
  for (int64_t i = 0; i < 1000; ++i) points.push_back({i < 500 ? 1 : 1'000'000, 1.0 * i});
  const auto kept = thinned(points, 10);
  EXPECT_THAT(
      kept, ElementsAre(Point{1, 0}, Point{1, 499}, Point{1'000'000, 500}, Point{1'000'000, 999}));
}

TEST(Smoothed, IsTheMeanOfNeighbours) {
  const std::vector<Point> points = {{1, 0}, {2, 3}, {3, 6}, {4, 0}};
  EXPECT_THAT(smoothed(points, 1),
              ElementsAre(Point{1, 1.5}, Point{2, 3}, Point{3, 3}, Point{4, 3}));
  EXPECT_THAT(smoothed({}, 3), IsEmpty());
}

TEST(Axis, HasRoundTicks) {
  const auto axis = make_axis(0.13, 2.31, false, 5);
  EXPECT_THAT(axis.ticks, ElementsAre(0, 0.5, 1, 1.5, 2, 2.5));
  EXPECT_DOUBLE_EQ(axis.place(0), 0);
  EXPECT_DOUBLE_EQ(axis.place(2.5), 1);
  EXPECT_THAT(make_step_axis(10, 500, 5).ticks, ElementsAre(100, 200, 300, 400, 500));
  EXPECT_THAT(make_step_axis(0, 3, 8).ticks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(make_axis(0.002, 2, true, 4).ticks, ElementsAre(0.01, 0.1, 1));
  EXPECT_NEAR(make_axis(0.01, 1, true, 4).place(0.1), 0.5, 1e-9);
}

TEST(Axis, StandsAnything) {
  for (const auto& [low, high] : {std::pair(0.0, 0.0), std::pair(5.0, 5.0), std::pair(-3.0, -3.0),
                                  std::pair(-1.7e308, 1.7e308), std::pair(1e-310, 2e-310),
                                  std::pair(1e18, 1e18 + 1), std::pair(-1e-300, 1e300)}) {
    for (const bool log : {false, true}) {
      const auto axis = make_axis(low, high, log, 5);
      EXPECT_LT(axis.low, axis.high) << low << " " << high;
      EXPECT_LE(axis.ticks.size(), 100U);
      if (std::fabs(low) > 1e300) continue;
      EXPECT_GE(axis.place(low), -1e-6) << low << " " << high;
      EXPECT_LE(axis.place(high), 1 + 1e-6) << low << " " << high;
    }
  }
}

TEST(Axis, LogarithmicWhereValuesAreFarApart) {
  EXPECT_TRUE(suits_log("loss", {0.01, 2}));
  EXPECT_FALSE(suits_log("loss", {0, 2}));
  EXPECT_FALSE(suits_log("loss", {0.5, 2}));
  EXPECT_FALSE(suits_log("waited", {0.01, 2}));
  EXPECT_FALSE(suits_log("lr", {1e-5, 0.1}));
}

TEST(Axis, OfCountsHasWholeTicks) {
  auto axis = make_axis(21, 23, false, 5);
  EXPECT_THAT(axis.ticks, testing::Contains(21.5));
  keep_whole_ticks(axis);
  EXPECT_THAT(axis.ticks, ElementsAre(21, 22, 23));
}

TEST(Text, OfTicksAndUnits) {
  EXPECT_EQ(tick_text(0.30000000000000004), "0.3");
  EXPECT_EQ(tick_text(0), "0");
  EXPECT_EQ(tick_text(950), "950");
  EXPECT_EQ(tick_text(9500), "9.5k");
  EXPECT_EQ(tick_text(20'000), "20k");
  EXPECT_EQ(tick_text(1.5e6), "1.5M");
  EXPECT_EQ(tick_text(-2e-5), "-2e-05");
  EXPECT_EQ(unit_of("seconds", 0.02).name, "ms");
  EXPECT_EQ(unit_of("seconds", 2).name, "s");
  EXPECT_EQ(unit_of("loss", 2).name, "");
  EXPECT_EQ(title_of("seconds"), "step time");
  EXPECT_EQ(title_of("test/accuracy"), "test accuracy");
}

}  // namespace
}  // namespace muster::track
