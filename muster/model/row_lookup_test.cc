#include "muster/model/row_lookup.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/model/click_parts.h"
#include "muster/model/net_testing.h"
#include "muster/model/row_source_testing.h"

namespace muster::model {
namespace {

using testing::MemoryRows;

constexpr int64_t kWidth = 3;

std::shared_ptr<LaneContext> lane_with(MemoryRows& rows) {
  auto context = testing::lane();
  context->step = 5;
  context->lane = 2;
  context->rows = &rows;
  return context;
}

// Four samples of three features. Id 5 occurs in two features, id 7 twice in one sample.
torch::Tensor some_ids() {
  return torch::tensor({{0, 5, -1}, {0, 5, 7}, {5, -1, -1}, {0, 7, 7}}, torch::kInt64);
}

// The keys of some_ids(), ascending.
std::vector<uint64_t> some_keys() {
  const std::set<uint64_t> keys = {row_key(0, 0), row_key(0, 5), row_key(1, 5), row_key(1, 7),
                                   row_key(2, 7)};
  return {keys.begin(), keys.end()};
}

TEST(RowKey, NeverChanges) {
  EXPECT_EQ(row_key(0, 0), 0xa706dd2f4d197e6f);
  EXPECT_EQ(row_key(0, 1), 0x08b4fda8c892b50e);
  EXPECT_EQ(row_key(1, 0), 0x5e41ab087439611e);
  EXPECT_EQ(row_key(25, std::numeric_limits<int64_t>::max()), 0x14e418d5e5e9405d);
}

TEST(RowKey, DiffersBetweenFeaturesAndIds) {
  std::set<uint64_t> keys;
  for (int64_t feature = 0; feature < 40; ++feature) {
    for (int64_t id = 0; id < 500; ++id) keys.insert(row_key(feature, id));
  }
  EXPECT_EQ(keys.size(), 40U * 500);
}

TEST(RowLookup, GivesTheRowOfEachId) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  const torch::Tensor ids = some_ids();
  const torch::Tensor vectors = lookup.forward(ids);
  ASSERT_EQ(vectors.sizes(), (std::vector<int64_t>{4, 3, kWidth}));
  EXPECT_EQ(vectors.scalar_type(), torch::kFloat32);
  for (int64_t sample = 0; sample < 4; ++sample) {
    for (int64_t feature = 0; feature < 3; ++feature) {
      const auto id = ids[sample][feature].item<int64_t>();
      const torch::Tensor expected =
          id < 0 ? torch::zeros({kWidth}) : torch::tensor(rows.row(row_key(feature, id)));
      EXPECT_TRUE(vectors[sample][feature].equal(expected)) << sample << ", " << feature;
    }
  }
}

TEST(RowLookup, ReadsEachKeyOnceAndAllInOneCall) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  lookup.forward(some_ids());
  ASSERT_EQ(rows.reads.size(), 1U);
  EXPECT_EQ(rows.reads[0].step, 5);
  EXPECT_EQ(rows.reads[0].keys, some_keys());
  EXPECT_TRUE(rows.adds.empty());
}

TEST(RowLookup, TakesIdsThatAreNotContiguous) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  const torch::Tensor numbers = torch::full({4, 2}, 9, torch::kInt64);
  const torch::Tensor inputs = torch::cat({numbers, some_ids()}, 1);
  EXPECT_TRUE(lookup.forward(inputs.narrow(1, 2, 3)).equal(lookup.forward(some_ids())));
}

// The same function of the vectors, with a gradient that differs from place to place.
torch::Tensor some_loss(const torch::Tensor& vectors) {
  const torch::Tensor factors = torch::arange(vectors.numel()).to(torch::kFloat32).div(7).sub(2);
  return vectors.mul(factors.view(vectors.sizes())).square().sum();
}

TEST(RowLookup, GradientsAreThoseOfAnEmbedding) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  const torch::Tensor ids = some_ids();
  some_loss(lookup.forward(ids)).backward();

  const auto keys = some_keys();
  std::vector<torch::Tensor> table;
  for (const uint64_t key : keys) table.push_back(torch::tensor(rows.row(key)));
  table.push_back(torch::zeros({kWidth}));  // "none"
  const torch::Tensor weight = torch::stack(table).requires_grad_();
  const auto none = static_cast<int64_t>(keys.size());
  torch::Tensor places = torch::full({4, 3}, none, torch::kInt64);
  for (int64_t sample = 0; sample < 4; ++sample) {
    for (int64_t feature = 0; feature < 3; ++feature) {
      const auto id = ids[sample][feature].item<int64_t>();
      if (id < 0) continue;
      const auto place = std::ranges::find(keys, row_key(feature, id)) - keys.begin();
      places[sample][feature] = static_cast<int64_t>(place);
    }
  }
  some_loss(torch::embedding(weight, places, none)).backward();

  ASSERT_EQ(rows.gradients_of.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const torch::Tensor gradient = torch::tensor(rows.gradients_of.at(keys[i]));
    const torch::Tensor expected = weight.grad()[static_cast<int64_t>(i)];
    EXPECT_TRUE(gradient.allclose(expected, 1e-6, 1e-6)) << gradient << " is not " << expected;
  }
}

// Of some_ids(). Where there is no id, a value has no effect.
torch::Tensor some_values() {
  return torch::tensor(
      {{0.5F, -2.0F, 9.0F}, {1.0F, 0.25F, 3.0F}, {0.0F, 1.0F, 1.0F}, {-0.125F, 1e-3F, 7.0F}});
}

// What torch makes of some_ids().
struct TorchBags {
  torch::Tensor weight;  // the rows of some_keys()
  torch::Tensor sums;
};

TorchBags torch_bags(MemoryRows& rows, const std::optional<torch::Tensor>& values) {
  const auto keys = some_keys();
  std::vector<torch::Tensor> table;
  for (const uint64_t key : keys) table.push_back(torch::tensor(rows.row(key)));
  TorchBags bags;
  bags.weight = torch::stack(table).requires_grad_();
  const torch::Tensor ids = some_ids();
  std::vector<int64_t> places;
  std::vector<int64_t> offsets;
  std::vector<float> weights;
  for (int64_t sample = 0; sample < 4; ++sample) {
    offsets.push_back(static_cast<int64_t>(places.size()));
    for (int64_t feature = 0; feature < 3; ++feature) {
      const auto id = ids[sample][feature].item<int64_t>();
      if (id < 0) continue;
      const auto place = std::ranges::find(keys, row_key(feature, id)) - keys.begin();
      places.push_back(static_cast<int64_t>(place));
      if (values) weights.push_back((*values)[sample][feature].item<float>());
    }
  }
  std::optional<torch::Tensor> per_sample_weights;
  if (values) per_sample_weights = torch::tensor(weights);
  bags.sums = std::get<0>(torch::embedding_bag(
      bags.weight, torch::tensor(places, torch::kInt64), torch::tensor(offsets, torch::kInt64),
      /*scale_grad_by_freq=*/false, /*mode=*/0, /*sparse=*/false, per_sample_weights));
  return bags;
}

TEST(RowLookup, SumsAndTheirGradientsAreThoseOfTorchsEmbeddingBag) {
  for (const std::optional<torch::Tensor>& values :
       {std::optional<torch::Tensor>(), std::optional(some_values())}) {
    MemoryRows rows(kWidth);
    RowLookup lookup(lane_with(rows));
    const torch::Tensor sums = lookup.sum(some_ids(), values);
    ASSERT_EQ(sums.sizes(), (std::vector<int64_t>{4, kWidth}));
    EXPECT_EQ(sums.scalar_type(), torch::kFloat32);
    const TorchBags expected = torch_bags(rows, values);
    EXPECT_TRUE(sums.allclose(expected.sums, 1e-6, 1e-6)) << sums << " is not " << expected.sums;
    some_loss(sums).backward();
    some_loss(expected.sums).backward();
    ASSERT_EQ(rows.adds.size(), 1U);
    EXPECT_EQ(rows.adds[0].keys, some_keys());
    EXPECT_EQ(rows.adds[0].step, 5);
    EXPECT_EQ(rows.adds[0].lane, 2);
    const auto keys = some_keys();
    for (size_t i = 0; i < keys.size(); ++i) {
      const torch::Tensor gradient = torch::tensor(rows.gradients_of.at(keys[i]));
      const torch::Tensor wanted = expected.weight.grad()[static_cast<int64_t>(i)];
      EXPECT_TRUE(gradient.allclose(wanted, 1e-6, 1e-6)) << gradient << " is not " << wanted;
    }
  }
}

// Each product and each addition rounds once.
TEST(RowLookup, SumsAreThoseInDoublePrecisionButForRounding) {
  constexpr int64_t kSamples = 20;
  constexpr int64_t kFeatures = 50;
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows), /*bags=*/true);
  const torch::Tensor mixed = torch::arange(kSamples * kFeatures).mul(7919).remainder(1009);
  const torch::Tensor ids = mixed.remainder(90).sub(10).clamp_min(-1).view({kSamples, kFeatures});
  const torch::Tensor values =
      mixed.to(torch::kFloat32).div(100).sub(5).view({kSamples, kFeatures});
  const torch::Tensor sums = lookup.sum(ids, values);
  const torch::Tensor factors =
      torch::arange(kSamples * kWidth).to(torch::kFloat32).div(9).sub(3).view({kSamples, kWidth});
  sums.mul(factors).sum().backward();

  constexpr double kUnit = 0x1p-24;
  std::map<uint64_t, std::vector<std::pair<double, double>>> gradients;  // sum, sum of magnitudes
  std::map<uint64_t, int> uses;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    for (int64_t j = 0; j < kWidth; ++j) {
      double sum = 0;
      double size = 0;
      for (int64_t feature = 0; feature < kFeatures; ++feature) {
        const auto id = ids[sample][feature].item<int64_t>();
        if (id < 0) continue;
        const uint64_t key = row_key(0, id);
        const auto value = values[sample][feature].item<double>();
        const double term = value * rows.row(key)[static_cast<size_t>(j)];
        sum += term;
        size += std::abs(term);
        auto& [gradient, magnitude] = gradients.try_emplace(key, static_cast<size_t>(kWidth))
                                          .first->second[static_cast<size_t>(j)];
        const double part = value * factors[sample][j].item<double>();
        gradient += part;
        magnitude += std::abs(part);
        uses[key] += 1;
      }
      EXPECT_NEAR(sums[sample][j].item<double>(), sum, (kFeatures + 1) * kUnit * size);
    }
  }
  ASSERT_EQ(rows.gradients_of.size(), gradients.size());
  for (const auto& [key, gradient] : gradients) {
    for (size_t j = 0; j < gradient.size(); ++j) {
      EXPECT_NEAR(rows.gradients_of.at(key)[j], gradient[j].first,
                  (uses.at(key) + 1) * kUnit * gradient[j].second);
    }
  }
}

TEST(RowLookup, ValuesOfOneGiveTheSumsWithoutValues) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  const torch::Tensor without = lookup.sum(some_ids(), std::nullopt);
  some_loss(without).backward();
  const auto gradients = rows.gradients_of;
  const torch::Tensor with = lookup.sum(some_ids(), torch::ones({4, 3}));
  some_loss(with).backward();
  EXPECT_TRUE(with.equal(without));
  EXPECT_EQ(rows.gradients_of, gradients);
}

TEST(RowLookup, RefusesValuesThatDoNotFitTheIds) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  EXPECT_THROW(lookup.sum(some_ids(), torch::ones({4, 2})), c10::Error);
  EXPECT_THROW(lookup.sum(some_ids(), torch::ones({4, 3}, torch::kFloat64)), c10::Error);
  EXPECT_TRUE(rows.reads.empty());
}

// What is asked for ahead is what a lane reads: never the bits of numbers or values.
TEST(RowKeys, AreThoseThatALookupReads) {
  for (const bool bags : {false, true}) {
    data::Schema schema;
    schema.input = data::DType::kInt64;
    schema.input_shape = {2 + 3 + 3};
    schema.numbers = 2;
    schema.has_ids = true;
    schema.ids_are_a_bag = bags;
    schema.has_values = true;
    const torch::Tensor numbers = torch::full({4, 2}, 9, torch::kInt64);
    const torch::Tensor values = some_values().to(torch::kFloat64).view(torch::kInt64);
    const torch::Tensor records = torch::cat({numbers, some_ids(), values}, 1).contiguous();
    MemoryRows rows(kWidth);
    const auto context = lane_with(rows);
    RowLookup lookup(context, bags);
    const ClickInput record = split_input(records, record_shape(schema, *context));
    EXPECT_TRUE(record.ids.equal(some_ids()));
    ASSERT_TRUE(record.values);
    EXPECT_TRUE(record.values->equal(some_values()));
    lookup.sum(record.ids, record.values);
    const std::span all(records.const_data_ptr<int64_t>(), static_cast<size_t>(records.numel()));
    ASSERT_EQ(rows.reads.size(), 1U);
    EXPECT_EQ(row_keys(schema, all), rows.reads[0].keys);
  }
}

TEST(RowLookup, AddsOnceForTheLaneAndStepOfTheForwardPass) {
  MemoryRows rows(kWidth);
  const auto context = lane_with(rows);
  RowLookup lookup(context);
  const torch::Tensor loss = some_loss(lookup.forward(some_ids()));
  context->step = 99;
  context->lane = 0;
  loss.backward();
  ASSERT_EQ(rows.adds.size(), 1U);
  EXPECT_EQ(rows.adds[0].step, 5);
  EXPECT_EQ(rows.adds[0].lane, 2);
  EXPECT_EQ(rows.adds[0].keys, some_keys());
}

TEST(RowLookup, HasNoGradientOutsideOfTraining) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(lookup.forward(some_ids()).requires_grad());
  }
  lookup.eval();
  EXPECT_FALSE(lookup.forward(some_ids()).requires_grad());
  EXPECT_EQ(rows.reads.size(), 2U);
}

TEST(RowLookup, AsksForNothingWithoutIds) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  for (const torch::Tensor& ids :
       {torch::full({4, 2}, -1, torch::kInt64), torch::empty({0, 2}, torch::kInt64),
        torch::empty({4, 0}, torch::kInt64)}) {
    const torch::Tensor vectors = lookup.forward(ids);
    EXPECT_EQ(vectors.sizes(), (std::vector<int64_t>{ids.size(0), ids.size(1), kWidth}));
    const torch::Tensor sums = lookup.sum(ids, torch::ones(ids.sizes()));
    EXPECT_EQ(sums.sizes(), (std::vector<int64_t>{ids.size(0), kWidth}));
    const torch::Tensor parameter = torch::ones({}).requires_grad_();
    ((vectors.sum() + sums.sum()) * parameter).backward();
    EXPECT_EQ(parameter.grad().item<float>(), 0);
  }
  EXPECT_TRUE(rows.reads.empty());
  EXPECT_TRUE(rows.adds.empty());
}

TEST(RowLookup, RefusesAGradientThatIsNotFinite) {
  for (const float factor :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    MemoryRows rows(kWidth);
    RowLookup lookup(lane_with(rows));
    const torch::Tensor loss = lookup.forward(some_ids())[3][1][2] * factor;  // of id 7, feature 1
    try {
      loss.backward();
      ADD_FAILURE() << "a gradient of " << factor << " was accepted";
    } catch (const RowGradientNotFinite& e) {
      EXPECT_EQ(e.what(),
                fmt::format("step 5, lane 2: the gradient of the table row with key {:#018x} is "
                            "not finite; lower optimizer.lr and tables.lr, or look at the samples "
                            "of this lane",
                            row_key(1, 7)));
    }
    EXPECT_TRUE(rows.adds.empty());
  }
}

TEST(RowLookup, RefusesWhatIsNotIds) {
  MemoryRows rows(kWidth);
  RowLookup lookup(lane_with(rows));
  EXPECT_THROW(lookup.forward(torch::zeros({2, 3})), c10::Error);
  EXPECT_THROW(lookup.forward(torch::zeros({2}, torch::kInt64)), c10::Error);
}

TEST(RowLookupDeathTest, NeedsRows) {
  EXPECT_DEATH(RowLookup{testing::lane()}, "a lookup needs a lane with rows");
}

}  // namespace
}  // namespace muster::model
