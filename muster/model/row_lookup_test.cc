#include "muster/model/row_lookup.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

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
    const torch::Tensor parameter = torch::ones({}).requires_grad_();
    (vectors.sum() * parameter).backward();
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
