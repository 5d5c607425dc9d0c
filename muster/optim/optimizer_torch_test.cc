// Our optimizers against torch::optim, step by step, on the same weights and gradients.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "muster/optim/flat_model_testing.h"
#include "muster/optim/norm.h"

namespace muster::optim {
namespace {

using config::OptimizerOptions;
using Parameters = std::vector<torch::Tensor>;
using TorchOptimizer = std::unique_ptr<torch::optim::Optimizer>;

struct Case {
  std::string name;
  OptimizerOptions options;
  std::function<TorchOptimizer(const Parameters&)> torch;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }  // NOLINT: GoogleTest's name

// eps is large where weight decay is part of a gradient that is divided by its own size: where the
// two cancel, rounding decides the direction, and no two programs would agree.
std::vector<Case> all_cases() {
  namespace to = torch::optim;
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& kind, auto change, auto torch) {
    OptimizerOptions options;
    options.kind = kind;
    options.lr = 0.02;
    change(options);
    cases.push_back({name, options, torch});
  };
  add(
      "sgd", "sgd", [](auto&) {},
      [](const Parameters& p) { return std::make_unique<to::SGD>(p, to::SGDOptions(0.02)); });
  add(
      "sgd_decay", "sgd", [](auto& o) { o.weight_decay = 0.1; },
      [](const Parameters& p) {
        return std::make_unique<to::SGD>(p, to::SGDOptions(0.02).weight_decay(0.1));
      });
  add(
      "momentum", "sgd", [](auto& o) { o.momentum = 0.9, o.dampening = 0.3, o.weight_decay = 0.1; },
      [](const Parameters& p) {
        return std::make_unique<to::SGD>(
            p, to::SGDOptions(0.02).momentum(0.9).dampening(0.3).weight_decay(0.1));
      });
  add(
      "nesterov", "sgd", [](auto& o) { o.momentum = 0.9, o.nesterov = true; },
      [](const Parameters& p) {
        return std::make_unique<to::SGD>(p, to::SGDOptions(0.02).momentum(0.9).nesterov(true));
      });
  add(
      "adam", "adam", [](auto&) {},
      [](const Parameters& p) { return std::make_unique<to::Adam>(p, to::AdamOptions(0.02)); });
  add(
      "adam_decay", "adam",
      [](auto& o) { o.weight_decay = 0.1, o.beta1 = 0.8, o.beta2 = 0.95, o.eps = 1e-3; },
      [](const Parameters& p) {
        return std::make_unique<to::Adam>(
            p, to::AdamOptions(0.02).weight_decay(0.1).betas({0.8, 0.95}).eps(1e-3));
      });
  add(
      "adamw", "adamw", [](auto& o) { o.weight_decay = 0.1; },
      [](const Parameters& p) {
        return std::make_unique<to::AdamW>(p, to::AdamWOptions(0.02).weight_decay(0.1));
      });
  add(
      "adagrad", "adagrad", [](auto& o) { o.weight_decay = 0.1, o.eps = 1e-10; },
      [](const Parameters& p) {
        return std::make_unique<to::Adagrad>(p, to::AdagradOptions(0.02).weight_decay(0.1));
      });
  add(
      "rmsprop", "rmsprop", [](auto& o) { o.weight_decay = 0.1, o.eps = 1e-3; },
      [](const Parameters& p) {
        return std::make_unique<to::RMSprop>(p,
                                             to::RMSpropOptions(0.02).weight_decay(0.1).eps(1e-3));
      });
  add(
      "rmsprop_momentum", "rmsprop", [](auto& o) { o.momentum = 0.9; },
      [](const Parameters& p) {
        return std::make_unique<to::RMSprop>(p, to::RMSpropOptions(0.02).momentum(0.9));
      });
  return cases;
}

class AgainstTorch : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Optimizer, AgainstTorch, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

const std::vector<size_t> kSizes = {size_t{40} * 300, 40, size_t{5} * 7 * 3 * 3, 1};
const std::vector<std::vector<int64_t>> kShapes = {{40, 300}, {40}, {5, 7, 3, 3}, {}};

FlatModel make_model(const Optimizer& optimizer) {
  std::vector<TensorInfo> infos;
  for (size_t t = 0; t < kSizes.size(); ++t) {
    infos.push_back({fmt::format("w{}", t), static_cast<int>(kShapes[t].size())});
  }
  return FlatModel(infos, kSizes, optimizer.state_names().size(), 21);
}

torch::Tensor tensor_of(const FlatModel& model, const std::vector<float>& flat, size_t t) {
  auto tensor = torch::empty(kShapes[t]);
  std::memcpy(tensor.data_ptr<float>(), &flat[model.layout.tensor_begin(t)],
              kSizes[t] * sizeof(float));
  return tensor;
}

// Torch fuses multiplications with additions where we do not, and divides where we multiply by the
// inverse: a few roundings in each step, of numbers no larger than the weight has been or the step
// it has taken. In that unit the two may drift apart by a few a step, and not more.
TEST_P(AgainstTorch, TwentyStepsAgree) {
  constexpr double kUnitsPerStep = 4;
  auto made = make_optimizer(GetParam().options);
  ASSERT_TRUE(made.ok()) << made.error().message();
  const Optimizer& ours = **made;
  FlatModel model = make_model(ours);
  Parameters parameters;
  for (size_t t = 0; t < kSizes.size(); ++t) {
    parameters.push_back(tensor_of(model, model.weights, t).requires_grad_());
  }
  const TorchOptimizer theirs = GetParam().torch(parameters);

  double worst = 0;
  double moved = 0;
  std::vector<float> largest(model.weights.size(), 0);
  for (int64_t step = 0; step < 20; ++step) {
    model.draw_gradient(22, step);
    for (size_t t = 0; t < kSizes.size(); ++t) {
      parameters[t].mutable_grad() = tensor_of(model, model.gradient, t);
    }
    const std::vector<float> before = model.weights;
    model.step(ours, {step, GetParam().options.lr, 1});
    theirs->step();
    for (size_t t = 0; t < kSizes.size(); ++t) {
      const float* w = parameters[t].data_ptr<float>();
      for (size_t i = 0; i < kSizes[t]; ++i) {
        const size_t at = model.layout.tensor_begin(t) + i;
        const float change = std::abs(model.weights[at] - before[at]);
        largest[at] = std::max({largest[at], std::abs(before[at]), change});
        const float unit = largest[at] * std::numeric_limits<float>::epsilon();
        const double drift = static_cast<double>(std::abs(model.weights[at] - w[i]) / unit);
        worst = std::max(worst, drift / static_cast<double>(step + 1));
        moved = std::max(moved, static_cast<double>(change));
      }
    }
    ASSERT_LE(worst, kUnitsPerStep) << "after step " << step;
  }
  EXPECT_GT(moved, 1e-3);
  RecordProperty("worst_units_per_step", std::to_string(worst));
}

TEST(Clipping, ByValueAndNormAsTorchDoes) {
  OptimizerOptions options;
  options.lr = 1;
  options.clip.value = 0.5;
  options.clip.norm = 3;
  auto made = make_optimizer(options);
  ASSERT_TRUE(made.ok());
  FlatModel model = make_model(**made);
  model.draw_gradient(23, 0);
  Parameters parameters;
  for (size_t t = 0; t < kSizes.size(); ++t) {
    parameters.push_back(tensor_of(model, model.weights, t).requires_grad_());
    parameters.back().mutable_grad() = tensor_of(model, model.gradient, t);
  }
  torch::nn::utils::clip_grad_value_(parameters, 0.5);
  const double their_norm = torch::nn::utils::clip_grad_norm_(parameters, 3.0);

  const double norm = model.gradient_norm(options.clip.value);
  EXPECT_NEAR(norm, their_norm, 1e-5 * norm);
  const std::vector<float> before = model.weights;
  model.step(**made, {0, 1, clip_factor(norm, options.clip.norm)});
  for (size_t t = 0; t < kSizes.size(); ++t) {
    const float* g = parameters[t].grad().data_ptr<float>();
    for (size_t i = 0; i < kSizes[t]; ++i) {
      const size_t at = model.layout.tensor_begin(t) + i;
      ASSERT_NEAR(before[at] - g[i], model.weights[at], 1e-6f);
    }
  }
}

TEST(Statistic, RunsAsBatchNormDoes) {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(8).momentum(0.1));
  auto made = make_optimizer({});
  ASSERT_TRUE(made.ok());
  const std::vector<size_t> sizes = {8};
  FlatModel model({{"running_mean", 1, Role::kStatistic, 0.1}}, sizes, 0, 1);
  std::fill(model.weights.begin(), model.weights.end(), 0.0f);
  torch::manual_seed(3);
  for (int64_t step = 0; step < 20; ++step) {
    const torch::Tensor x = torch::randn({32, 8}) + 1;
    norm->forward(x);
    const torch::Tensor mean = x.mean(0);
    std::memcpy(model.gradient.data(), mean.data_ptr<float>(), 8 * sizeof(float));
    model.step(**made, {step, 0.1, 0.5});
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_NEAR(model.weights[i], norm->running_mean.data_ptr<float>()[i], 1e-6f);
    }
  }
}

}  // namespace
}  // namespace muster::optim
