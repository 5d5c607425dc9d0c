// dlrm, deepfm, wide-deep and two-tower.
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/model/click_parts.h"
#include "muster/model/net_testing.h"
#include "muster/model/row_lookup.h"
#include "muster/model/row_source_testing.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

using testing::complaint;
using ::testing::ElementsAre;
using testing::MemoryRows;
using testing::zoo;

constexpr int64_t kWidth = 8;
constexpr int64_t kSamples = 16;

data::Schema records(int64_t numbers = 3, int64_t features = 4) {
  data::Schema schema;
  schema.input = data::DType::kInt64;
  schema.input_shape = {numbers + features};
  schema.classes = 2;
  schema.numbers = numbers;
  schema.has_ids = true;
  return schema;
}

// The same with a value for each id.
data::Schema with_values(data::Schema schema) {
  schema.input_shape[0] += schema.input_shape[0] - schema.numbers;
  schema.has_values = true;
  return schema;
}

ClickShape shape_of(const data::Schema& schema) { return record_shape(schema, LaneContext{}); }

// Numbers between -2 and 2, ids from -1 (none) to 5, values between -1 and 1.
torch::Tensor inputs(const data::Schema& schema, int64_t samples = kSamples) {
  const int64_t features = schema.id_columns();
  const int64_t columns = schema.numbers + features;
  const torch::Tensor mixed =
      torch::arange(samples * columns).mul(7919).remainder(1009).view({samples, columns});
  const torch::Tensor ids = mixed.narrow(1, schema.numbers, features).remainder(7).sub(1);
  torch::Tensor record = torch::cat({mixed.narrow(1, 0, schema.numbers).sub(504).mul(260), ids}, 1);
  if (!schema.has_values) return record;
  const torch::Tensor values =
      torch::arange(samples * features).mul(31).remainder(17).sub(8).to(torch::kFloat64).div(8);
  return torch::cat(
      {record, values.view({samples, features}).masked_fill(ids.lt(0), 0).view(torch::kInt64)}, 1);
}

// A net and what it stands on.
struct Built {
  MemoryRows rows;
  std::shared_ptr<LaneContext> lane;
  std::shared_ptr<Net> net;

  Built(const char* model, const char* args, const data::Schema& schema, int64_t width = kWidth)
      : rows(width), lane(testing::lane()) {
    lane->rows = &rows;
    net = testing::make(zoo(model, args), schema, lane);
  }
};

// What build() says is wrong, if there are rows of this width.
std::string complaint_with(const char* model, const char* args, const data::Schema& schema,
                           int64_t width = kWidth) {
  MemoryRows rows(width);
  const auto context = testing::lane();
  context->rows = &rows;
  const auto net = build(Registry::builtin(), zoo(model, args), schema, context);
  return net.ok() ? "" : net.error().message();
}

struct Example {
  const char* name;
  const char* args;
  data::Schema schema;
};

std::vector<Example> examples() {
  return {
      {"dlrm", "", records()},
      {"dlrm", "{ bottom: [], top: [16] }", records()},
      {"dlrm", "", records(0, 3)},
      {"dlrm", "", records(2, 1)},
      {"deepfm", "", records()},
      {"deepfm", "{ hidden: [16] }", records(0, 1)},
      {"wide-deep", "", records()},
      {"wide-deep", "{ hidden: [] }", records(0, 3)},
      {"two-tower", "", records()},
      {"two-tower", "{ left: 1, hidden: [16, 16], out: 4 }", records(0, 3)},
      {"two-tower", "", records(2, 1)},
      {"dlrm", "{ top: [] }", with_values(records(0, 4))},
      {"deepfm", "{ hidden: [] }", with_values(records(0, 4))},
      {"wide-deep", "{ hidden: [] }", with_values(records(2, 3))},
      {"two-tower", "{ hidden: [] }", with_values(records(0, 4))},
  };
}

torch::Tensor loss_of(Built& built, const data::Schema& schema) {
  config::ModelOptions options;
  options.loss = "click";
  const auto loss = find_loss(Registry::builtin(), options, schema).value();
  const torch::Tensor targets = torch::arange(kSamples).mul(31).remainder(3).eq(0);
  return loss.compute(built.net->forward(inputs(schema)), targets.to(torch::kInt64));
}

TEST(ClickModels, GiveTwoScoresPerSample) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    Built built(example.name, example.args, example.schema);
    for (const int64_t samples : {0, 1, 5}) {
      const torch::Tensor scores = built.net->forward(inputs(example.schema, samples));
      EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{samples, 2}));
      EXPECT_TRUE(scores.isfinite().all().item<bool>());
    }
  }
}

TEST(ClickModels, EveryParameterAndEveryRowGetsAFiniteGradient) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    Built built(example.name, example.args, example.schema);
    const torch::Tensor loss = loss_of(built, example.schema);
    ASSERT_TRUE(std::isfinite(loss.item<float>()));
    loss.backward();
    for (const auto& parameter : built.net->named_parameters()) {
      const torch::Tensor& gradient = parameter.value().grad();
      ASSERT_TRUE(gradient.defined()) << parameter.key();
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.key();
      EXPECT_GT(gradient.abs().max().item<float>(), 0) << parameter.key();
    }
    ASSERT_EQ(built.rows.reads.size(), 1U);
    ASSERT_EQ(built.rows.adds.size(), 1U);
    EXPECT_EQ(built.rows.adds[0].keys, built.rows.reads[0].keys);
    float largest = 0;
    for (const auto& [key, gradient] : built.rows.gradients_of) {
      for (const float value : gradient) largest = std::max(largest, std::abs(value));
    }
    EXPECT_GT(largest, 0);
  }
}

TEST(ClickModels, GradientsOfRowsAreThoseOfFiniteDifferences) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    Built built(example.name, example.args, example.schema);
    loss_of(built, example.schema).backward();
    const torch::NoGradGuard no_grad;
    const auto& [key, gradient] = *built.rows.gradients_of.begin();
    for (size_t i = 0; i < gradient.size(); ++i) {
      float& value = built.rows.row(key)[i];
      const float before = value;
      constexpr float kStep = 2e-3F;
      value = before + kStep;
      const auto above = loss_of(built, example.schema).item<double>();
      value = before - kStep;
      const auto below = loss_of(built, example.schema).item<double>();
      value = before;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 3e-4) << i;
    }
  }
}

// Bits of a training pass must not depend on the thread it runs in, nor on what ran before.
TEST(ClickModels, APassGivesTheSameBitsInEveryThread) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    const auto gradients = [&] {
      at::set_num_threads(1);
      Built built(example.name, example.args, example.schema);
      const torch::Tensor loss = loss_of(built, example.schema);
      loss.backward();
      std::vector<torch::Tensor> all = {loss.detach().flatten()};
      for (const auto& parameter : built.net->parameters()) {
        all.push_back(parameter.grad().flatten());
      }
      for (const auto& [key, gradient] : built.rows.gradients_of) {
        all.push_back(torch::tensor(gradient));
      }
      return torch::cat(all);
    };
    const torch::Tensor here = gradients();
    std::vector<torch::Tensor> there(3);
    std::vector<std::thread> threads;
    for (auto& result : there) threads.emplace_back([&] { result = gradients(); });
    for (auto& thread : threads) thread.join();
    for (const auto& result : there) EXPECT_TRUE(result.equal(here));
  }
}

TEST(ClickModels, CanComputeInBfloat16) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    Built built(example.name, example.args, example.schema);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const torch::Tensor scores = built.net->forward(inputs(example.schema));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    const torch::Tensor loss = scores.to(torch::kFloat32).square().sum();
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<float>()));
    EXPECT_EQ(built.rows.adds.size(), 1U);
  }
}

TEST(ClickModels, EvaluationAddsNothing) {
  Built built("dlrm", "", records());
  built.net->eval();
  loss_of(built, records()).backward();
  EXPECT_EQ(built.rows.reads.size(), 1U);
  EXPECT_TRUE(built.rows.adds.empty());
}

TEST(ClickModels, HaveTheseParameters) {
  const auto names = [](const char* model, const data::Schema& schema) {
    return testing::parameter_names(*Built(model, "", schema).net);
  };
  EXPECT_THAT(names("dlrm", records()),
              ElementsAre("bottom.fc1.weight", "bottom.fc1.bias", "bottom.fc2.weight",
                          "bottom.fc2.bias", "top.fc1.weight", "top.fc1.bias", "top.fc2.weight",
                          "top.fc2.bias", "top.fc3.weight", "top.fc3.bias"));
  EXPECT_THAT(names("dlrm", records(0, 3)),
              ElementsAre("top.fc1.weight", "top.fc1.bias", "top.fc2.weight", "top.fc2.bias",
                          "top.fc3.weight", "top.fc3.bias"));
  for (const char* model : {"deepfm", "wide-deep"}) {
    EXPECT_THAT(names(model, records()),
                ElementsAre("deep.fc1.weight", "deep.fc1.bias", "deep.fc2.weight", "deep.fc2.bias",
                            "deep.fc3.weight", "deep.fc3.bias"));
  }
  EXPECT_THAT(
      names("two-tower", records()),
      ElementsAre("left.fc1.weight", "left.fc1.bias", "left.fc2.weight", "left.fc2.bias",
                  "right.fc1.weight", "right.fc1.bias", "right.fc2.weight", "right.fc2.bias"));
  // 4 rows and the numbers' vector: 10 pairs.
  Built dlrm("dlrm", "", records());
  EXPECT_EQ(dlrm.net->named_parameters()["top.fc1.weight"].size(1), kWidth + 10);
}

// The rows of sample `sample`, one for each id, times its value; zeros for "none".
std::vector<torch::Tensor> rows_of(Built& built, const data::Schema& schema, int64_t sample) {
  const ClickInput record = split_input(inputs(schema), shape_of(schema));
  const torch::Tensor ids = record.ids[sample];
  std::vector<torch::Tensor> rows;
  for (int64_t feature = 0; feature < ids.numel(); ++feature) {
    const auto id = ids[feature].item<int64_t>();
    rows.push_back(id < 0 ? torch::zeros({kWidth})
                          : torch::tensor(built.rows.row(row_key(feature, id))));
    if (record.values) rows.back() = rows.back() * (*record.values)[sample][feature];
  }
  return rows;
}

std::vector<data::Schema> with_and_without_values(const data::Schema& schema) {
  return {schema, with_values(schema)};
}

void set_parameters_to_zero(Net& net) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net.parameters()) parameter.zero_();
}

// What is left if the dense layers give 0.
TEST(DeepFm, AddsFirstOrderWeightsAndProductsOfAllPairs) {
  for (const auto& schema : with_and_without_values(records())) {
    Built built("deepfm", "", schema);
    set_parameters_to_zero(*built.net);
    const torch::Tensor scores = built.net->forward(inputs(schema)).detach();
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const auto rows = rows_of(built, schema, sample);
      double expected = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        expected += rows[i][0].item<double>();
        for (size_t j = 0; j < i; ++j) {
          const auto product =
              rows[i].narrow(0, 1, kWidth - 1).dot(rows[j].narrow(0, 1, kWidth - 1));
          expected += product.item<double>();
        }
      }
      EXPECT_EQ(scores[sample][0].item<double>(), 0);
      EXPECT_NEAR(scores[sample][1].item<double>(), expected, 1e-5);
    }
  }
}

TEST(WideDeep, AddsWideWeights) {
  for (const auto& schema : with_and_without_values(records())) {
    Built built("wide-deep", "", schema);
    set_parameters_to_zero(*built.net);
    const torch::Tensor scores = built.net->forward(inputs(schema)).detach();
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      double expected = 0;
      for (const auto& row : rows_of(built, schema, sample)) expected += row[0].item<double>();
      EXPECT_EQ(scores[sample][0].item<double>(), 0);
      EXPECT_NEAR(scores[sample][1].item<double>(), expected, 1e-6);
    }
  }
}

TEST(Dlrm, MultipliesAllPairsOfRows) {
  for (const auto& schema : with_and_without_values(records(0, 4))) {
    Built built("dlrm", "{ top: [] }", schema);
    set_parameters_to_zero(*built.net);
    {
      const torch::NoGradGuard no_grad;
      built.net->named_parameters()["top.fc1.weight"][1] = torch::arange(1, 7).to(torch::kFloat32);
    }
    const torch::Tensor scores = built.net->forward(inputs(schema)).detach();
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const auto rows = rows_of(built, schema, sample);
      double expected = 0;
      int pair = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        for (size_t j = 0; j < i; ++j) expected += ++pair * rows[i].dot(rows[j]).item<double>();
      }
      EXPECT_EQ(scores[sample][0].item<double>(), 0);
      EXPECT_NEAR(scores[sample][1].item<double>(), expected, 1e-4);
    }
  }
}

TEST(TwoTower, MultipliesTheOutputsOfItsTowers) {
  const auto schema = records(2, 3);
  Built built("two-tower", "{ left: 1, hidden: [], out: 4 }", schema);
  const torch::NoGradGuard no_grad;
  const torch::Tensor scores = built.net->forward(inputs(schema));
  const torch::Tensor numbers = split_input(inputs(schema), shape_of(schema)).numbers;
  const auto parameters = built.net->named_parameters();
  const auto tower = [&](const std::string& name, const torch::Tensor& input) {
    return at::linear(input, parameters[name + ".fc1.weight"], parameters[name + ".fc1.bias"]);
  };
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const auto rows = rows_of(built, schema, sample);
    const torch::Tensor left = tower("left", torch::cat({rows[0], numbers[sample]}));
    const torch::Tensor right = tower("right", torch::cat({rows[1], rows[2]}));
    EXPECT_NEAR(scores[sample][1].item<double>(), left.dot(right).item<double>() / 2, 1e-5);
  }
}

TEST(SplitInput, NumbersAreInUnitsOfOneIn65536) {
  const auto record = split_input(torch::tensor({{65536, -32768, 7, -1}}, torch::kInt64),
                                  {.numbers = 2, .features = 2});
  EXPECT_TRUE(record.numbers.equal(torch::tensor({{1.0F, -0.5F}})));
  EXPECT_TRUE(record.ids.equal(torch::tensor({{7, -1}}, torch::kInt64)));
  EXPECT_FALSE(record.values);
}

TEST(SplitInput, ValuesAreTheBitsOfDoubles) {
  const auto input = torch::tensor({int64_t{65536}, int64_t{7}, int64_t{-1}, data::value_bits(0.1F),
                                    data::value_bits(0)})
                         .view({1, 5});
  const auto record = split_input(input, {.numbers = 1, .features = 2, .values = true});
  EXPECT_TRUE(record.numbers.equal(torch::tensor({{1.0F}})));
  EXPECT_TRUE(record.ids.equal(torch::tensor({{7, -1}}, torch::kInt64)));
  ASSERT_TRUE(record.values);
  EXPECT_TRUE(record.values->equal(torch::tensor({{0.1F, 0.0F}})));
}

TEST(ClickModels, ValuesOfOneGiveTheBitsWithoutValues) {
  const auto schema = records(2, 4);
  const auto gradients = [](Built& built, const torch::Tensor& input) {
    const torch::Tensor loss = built.net->forward(input).square().sum();
    loss.backward();
    std::vector<torch::Tensor> all = {loss.detach().flatten()};
    for (const auto& parameter : built.net->parameters()) all.push_back(parameter.grad().flatten());
    for (const auto& [key, gradient] : built.rows.gradients_of) {
      all.push_back(torch::tensor(gradient));
    }
    return torch::cat(all);
  };
  const torch::Tensor record = inputs(schema);
  const torch::Tensor ones = record.narrow(1, 2, 4).ge(0).to(torch::kFloat64).view(torch::kInt64);
  for (const char* const name : {"dlrm", "deepfm", "wide-deep", "two-tower"}) {
    Built without(name, "", schema);
    Built with(name, "", with_values(schema));
    EXPECT_TRUE(gradients(with, torch::cat({record, ones}, 1)).equal(gradients(without, record)))
        << name;
  }
}

TEST(ClickModels, SayWhatIsMissing) {
  for (const std::string name : {"dlrm", "deepfm", "wide-deep", "two-tower"}) {
    EXPECT_EQ(complaint(zoo(name), records()),
              "model " + name + " needs rows: set tables.width, for example to 16");
    EXPECT_EQ(complaint(zoo(name), testing::images()),
              "model " + name +
                  " needs records with ids, but the data has none; use data of format ctr or "
                  "libsvm");
    auto many = records();
    many.classes = 5;
    EXPECT_EQ(complaint(zoo(name), many),
              "model " + name +
                  " needs one target of two classes (clicked or not), but the data has 5 classes");
  }
  EXPECT_EQ(complaint_with("deepfm", "", records(), 1),
            "model deepfm needs tables.width to be at least 2, not 1");
  EXPECT_EQ(complaint_with("wide-deep", "", records(), 1),
            "model wide-deep needs tables.width to be at least 2, not 1");
  EXPECT_EQ(complaint_with("dlrm", "", records(), 1), "");
  EXPECT_EQ(complaint_with("dlrm", "", records(0, 1)),
            "model dlrm needs two ids, or an id and a number, in each record, but the data has one "
            "id; use wide-deep");
}

TEST(ClickModels, SayWhatIsWrongWithArguments) {
  EXPECT_EQ(complaint_with("dlrm", "botom: [3]", records()),
            "job.yaml:1:1: the dlrm model has no option 'botom' (did you mean 'bottom'?)");
  EXPECT_EQ(complaint_with("dlrm", "top: [3, 0]", records()),
            "job.yaml:1:6: top must hold widths of at least 1, not 0");
  EXPECT_EQ(complaint_with("two-tower", "left: 4", records()),
            "job.yaml:1:1: left 4 of the two-tower model leaves a tower without input; the data's "
            "records have 3 numbers, which go to the left, and 4 ids");
  EXPECT_EQ(complaint_with("two-tower", "left: 0", records()), "");
  EXPECT_EQ(complaint_with("two-tower", "left: 0", records(0, 4)),
            "job.yaml:1:1: left 0 of the two-tower model leaves a tower without input; the data's "
            "records have 0 numbers, which go to the left, and 4 ids");
  EXPECT_EQ(complaint_with("two-tower", "left: -1", records()),
            "job.yaml:1:7: left must be at least 0, not -1");
}

}  // namespace
}  // namespace muster::model
