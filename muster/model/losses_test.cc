// The loss click: its metrics against brute force. The other losses are tested in net_test.cc.
#include "muster/model/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/model/net_testing.h"

namespace muster::model {
namespace {

Loss click() {
  config::ModelOptions options;
  options.loss = "click";
  return find_loss(Registry::builtin(), options, testing::images({4}, 2)).value();
}

const Metric& metric(const Loss& loss, const std::string& name) {
  return *std::ranges::find(loss.metrics, name, &Metric::name);
}

struct Samples {
  std::vector<float> logits;
  std::vector<int64_t> clicked;

  size_t size() const { return logits.size(); }
  // Scores whose difference is exactly the logit, if that is a multiple of 2^-10 below 2^10.
  torch::Tensor output(size_t first, size_t count) const {
    std::vector<float> scores;
    for (size_t i = first; i < first + count; ++i) {
      const auto other = static_cast<float>(i % 5) - 2;
      scores.insert(scores.end(), {other, other + logits[i]});
    }
    return torch::tensor(scores).view({static_cast<int64_t>(count), 2});
  }
  torch::Tensor target(size_t first, size_t count) const {
    const auto begin = clicked.begin() + static_cast<std::ptrdiff_t>(first);
    return torch::tensor(std::vector<int64_t>(begin, begin + static_cast<std::ptrdiff_t>(count)),
                         torch::kInt64);
  }
};

// More clicks among higher logits. `step`: of logits.
Samples some_samples(size_t count, float step) {
  RandomStream random(3, Purpose::kUser);
  Samples samples;
  for (size_t i = 0; i < count; ++i) {
    const float logit = std::round((random.normal() * 2 - 1) / step) * step;
    samples.logits.push_back(logit);
    samples.clicked.push_back(random.uniform() < 1 / (1 + std::exp(-logit)) ? 1 : 0);
  }
  return samples;
}

// The metric, of batches that are collected in the given order.
double evaluate(const Metric& metric, const Samples& samples, size_t batch,
                bool backwards = false) {
  std::vector<double> bins(metric.bins);
  std::vector<size_t> starts;
  for (size_t first = 0; first < samples.size(); first += batch) starts.push_back(first);
  if (backwards) std::ranges::reverse(starts);
  for (const size_t first : starts) {
    const size_t count = std::min(batch, samples.size() - first);
    metric.collect(samples.output(first, count), samples.target(first, count), bins);
  }
  for (const double bin : bins) EXPECT_EQ(bin, std::floor(bin));
  return metric.finish(bins);
}

double area_under_curve(const Samples& samples) {
  double won = 0;
  double pairs = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < samples.size(); ++j) {
      if (samples.clicked[i] == 0 || samples.clicked[j] == 1) continue;
      pairs += 1;
      if (samples.logits[i] > samples.logits[j]) won += 1;
      if (samples.logits[i] == samples.logits[j]) won += 0.5;
    }
  }
  return won / pairs;
}

double entropy_by_that_of_the_mean(const Samples& samples) {
  double loss = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double probability = 1 / (1 + std::exp(-static_cast<double>(samples.logits[i])));
    loss -= std::log(samples.clicked[i] == 1 ? probability : 1 - probability);
  }
  const auto size = static_cast<double>(samples.size());
  const double share = std::accumulate(samples.clicked.begin(), samples.clicked.end(), 0.0) / size;
  return loss / size / -(share * std::log(share) + (1 - share) * std::log(1 - share));
}

TEST(Click, IsCrossEntropyOfTwoScores) {
  const auto loss = click();
  const Samples samples = some_samples(50, 0x1p-10F);
  const auto output = samples.output(0, 50);
  const auto target = samples.target(0, 50);
  const auto other = find_loss(Registry::builtin(), {}, testing::images({4}, 2)).value();
  EXPECT_TRUE(loss.compute(output, target).equal(other.compute(output, target)));
  EXPECT_EQ(metric(loss, "accuracy").measure(output, target),
            other.metrics[0].measure(output, target));
  EXPECT_THROW(loss.compute(torch::zeros({50, 3}), target), c10::Error);
  EXPECT_THROW(loss.compute(torch::zeros({50}), target), c10::Error);
}

TEST(Click, HasTheseMetrics) {
  const auto loss = click();
  ASSERT_EQ(loss.metrics.size(), 3U);
  EXPECT_EQ(loss.metrics[0].name, "auc");
  EXPECT_TRUE(loss.metrics[0].higher_is_better);
  EXPECT_EQ(loss.metrics[1].name, "normalized_entropy");
  EXPECT_FALSE(loss.metrics[1].higher_is_better);
  EXPECT_EQ(loss.metrics[2].name, "accuracy");
  EXPECT_EQ(loss.metrics[2].bins, 0U);
  EXPECT_EQ(loss.bins(), loss.metrics[0].bins + loss.metrics[1].bins);
  const auto other = find_loss(Registry::builtin(), {}, testing::images()).value();
  EXPECT_EQ(other.bins(), 0U);
}

TEST(Auc, IsExactForLogitsInDifferentSteps) {
  const auto loss = click();
  const Samples samples = some_samples(700, 0x1p-6F);  // many are equal
  EXPECT_DOUBLE_EQ(evaluate(metric(loss, "auc"), samples, 64), area_under_curve(samples));
}

TEST(Auc, IsNearForAllLogits) {
  const auto loss = click();
  const Samples samples = some_samples(700, 0x1p-10F);
  EXPECT_NEAR(evaluate(metric(loss, "auc"), samples, 64), area_under_curve(samples), 1e-3);
}

TEST(Auc, KnowsTheBestTheWorstAndTheBlind) {
  const auto loss = click();
  const Metric& auc = metric(loss, "auc");
  // Beyond 16 logits are equal, infinite ones too.
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(evaluate(auc, {{-infinity, -1, 1, infinity}, {0, 0, 1, 1}}, 4), 1);
  EXPECT_EQ(evaluate(auc, {{-100, -1, 1, 100}, {1, 1, 0, 0}}, 4), 0);
  EXPECT_EQ(evaluate(auc, {{1, 1, 1, 1}, {0, 1, 0, 1}}, 4), 0.5);
  EXPECT_EQ(evaluate(auc, {{20, 30}, {1, 0}}, 2), 0.5);
}

TEST(NormalizedEntropy, IsThatOfBruteForce) {
  const auto loss = click();
  const Samples samples = some_samples(700, 0x1p-10F);
  EXPECT_NEAR(evaluate(metric(loss, "normalized_entropy"), samples, 64),
              entropy_by_that_of_the_mean(samples), 1e-6);
}

TEST(NormalizedEntropy, IsOneIfTheMeanIsAlwaysPredicted) {
  const auto loss = click();
  // A quarter was clicked: the logit is -log(3).
  const auto logit = static_cast<float>(-std::log(3.0));
  EXPECT_NEAR(
      evaluate(metric(loss, "normalized_entropy"), {{logit, logit, logit, logit}, {0, 1, 0, 0}}, 4),
      1, 1e-5);
}

TEST(NormalizedEntropy, LimitsTheLossOfASample) {
  const auto loss = click();
  const float infinity = std::numeric_limits<float>::infinity();
  const double value = evaluate(metric(loss, "normalized_entropy"),
                                {{infinity, -infinity, -1000, 1000}, {1, 0, 1, 0}}, 4);
  EXPECT_NEAR(value, (64 + 64) / 4.0 / std::log(2.0), 1e-6);
}

TEST(ClickMetrics, DependNeitherOnBatchesNorOnTheirOrder) {
  const auto loss = click();
  const Samples samples = some_samples(500, 0x1p-10F);
  for (const char* name : {"auc", "normalized_entropy"}) {
    const double whole = evaluate(metric(loss, name), samples, 500);
    EXPECT_EQ(evaluate(metric(loss, name), samples, 1), whole) << name;
    EXPECT_EQ(evaluate(metric(loss, name), samples, 37), whole) << name;
    EXPECT_EQ(evaluate(metric(loss, name), samples, 37, /*backwards=*/true), whole) << name;
  }
}

TEST(ClickMetrics, AreNotANumberWhereTheyAreNotDefined) {
  const auto loss = click();
  for (const char* name : {"auc", "normalized_entropy"}) {
    const Metric& each = metric(loss, name);
    EXPECT_TRUE(std::isnan(evaluate(each, {{1, 2}, {0, 0}}, 2))) << name;
    EXPECT_TRUE(std::isnan(evaluate(each, {{1, 2}, {1, 1}}, 2))) << name;
    EXPECT_TRUE(std::isnan(each.finish(std::vector<double>(each.bins)))) << name;
    std::vector<double> bins(each.bins);
    each.collect(torch::tensor({{0.0F, std::nanf("")}, {0.0F, 1.0F}, {0.0F, 0.0F}}),
                 torch::tensor({0, 1, 0}, torch::kInt64), bins);
    EXPECT_TRUE(std::isnan(each.finish(bins))) << name;
  }
}

}  // namespace
}  // namespace muster::model
