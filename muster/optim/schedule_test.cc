#include "muster/optim/schedule.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::optim {
namespace {

using config::OptimizerOptions;
using ::testing::HasSubstr;

OptimizerOptions with(
    const std::string& kind,
    const std::function<void(config::ScheduleOptions&)>& change = [](auto&) {}) {
  OptimizerOptions options;
  options.lr = 0.5;
  options.schedule.kind = kind;
  change(options.schedule);
  return options;
}

TEST(Schedule, Constant) {
  const auto options = with("constant");
  EXPECT_TRUE(check_schedule(options, 0).ok());
  for (const int64_t step : {0, 1, 1000000}) EXPECT_EQ(learning_rate(options, step, 100), 0.5);
}

TEST(Schedule, WarmUpRisesInEqualStepsFromAboveZeroToTheFullRate) {
  for (const std::string kind : {"constant", "linear", "cosine"}) {
    const auto options = with(kind, [](auto& s) { s.warmup = 4; });
    for (int64_t step = 0; step <= 4; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(options, step, 100), 0.5 * static_cast<double>(step + 1) / 5)
          << kind << " " << step;
    }
  }
}

TEST(Schedule, StepDropsEverySoManySteps) {
  const auto options = with("step", [](auto& s) { s.every = 10, s.factor = 0.5, s.warmup = 4; });
  EXPECT_DOUBLE_EQ(learning_rate(options, 0, 100), 0.1);
  EXPECT_EQ(learning_rate(options, 9, 100), 0.5);
  EXPECT_EQ(learning_rate(options, 10, 100), 0.25);
  EXPECT_EQ(learning_rate(options, 19, 100), 0.25);
  EXPECT_EQ(learning_rate(options, 35, 100), 0.0625);
}

TEST(Schedule, LinearGoesFromTheFullRateToItsEndAndStaysThere) {
  const auto options = with("linear", [](auto& s) { s.warmup = 10, s.final = 0.2; });
  EXPECT_EQ(learning_rate(options, 10, 110), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(options, 60, 110), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(options, 110, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1000, 110), 0.1);
}

TEST(Schedule, CosineGoesAlongHalfAWave) {
  const auto options = with("cosine", [](auto& s) { s.steps = 100, s.final = 0.1; });
  for (int64_t step = 0; step <= 100; ++step) {
    const double wave = 0.5 * (1 + std::cos(std::numbers::pi * static_cast<double>(step) / 100));
    EXPECT_NEAR(learning_rate(options, step, 7777), 0.5 * (0.1 + 0.9 * wave), 1e-15);
  }
  EXPECT_DOUBLE_EQ(learning_rate(options, 101, 7777), 0.05);
}

TEST(Schedule, NeverRisesAfterWarmUp) {
  for (const std::string kind : {"step", "linear", "cosine"}) {
    const auto options = with(kind, [](auto& s) { s.every = 100, s.warmup = 50; });
    for (int64_t step = 51; step < 1100; ++step) {
      ASSERT_LE(learning_rate(options, step, 1000), learning_rate(options, step - 1, 1000))
          << kind << " " << step;
      ASSERT_GE(learning_rate(options, step, 1000), 0);
    }
  }
}

TEST(Schedule, OurCosineIsTheCosine) {
  for (int i = 0; i <= 100000; ++i) {
    const double x = i / 100000.0;
    ASSERT_NEAR(cos_pi(x), std::cos(std::numbers::pi * x), 1e-15) << x;
  }
  EXPECT_EQ(cos_pi(0), 1);
  EXPECT_EQ(cos_pi(0.5), 0);
  EXPECT_EQ(cos_pi(1), -1);
}

TEST(Schedule, RefusesWhatHasNoMeaning) {
  const auto refusal = [](const OptimizerOptions& options, int64_t total_steps) {
    const Status status = check_schedule(options, total_steps);
    return status.ok() ? std::string("accepted") : status.error().message();
  };
  EXPECT_THAT(refusal(with("cosin"), 10), HasSubstr("did you mean 'cosine'"));
  EXPECT_THAT(refusal(with("step"), 10), HasSubstr("schedule.every is missing"));
  EXPECT_THAT(refusal(with("cosine"), 0), HasSubstr("schedule.steps is missing"));
  EXPECT_EQ(refusal(with("cosine", [](auto& s) { s.steps = 5; }), 0), "accepted");
  EXPECT_THAT(refusal(with("linear", [](auto& s) { s.steps = s.warmup = 10; }), 20),
              HasSubstr("leaves nothing"));
  // A job that ends during its warm-up is short, and nothing is wrong with its schedule.
  EXPECT_EQ(refusal(with("linear", [](auto& s) { s.warmup = 10; }), 10), "accepted");
  EXPECT_THAT(refusal(with("linear", [](auto& s) { s.warmup = -1; }), 10), HasSubstr("warmup"));
  EXPECT_THAT(refusal(with("step", [](auto& s) { s.every = 1, s.factor = 0; }), 10),
              HasSubstr("factor"));
}

}  // namespace
}  // namespace muster::optim
