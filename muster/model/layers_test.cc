// Dropout, BatchNorm and attention against torch's own, one file to compile torch's headers once.
#include "muster/model/layers.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>

#include "muster/model/attention.h"
#include "muster/model/batch_norm.h"
#include "muster/model/dropout.h"
#include "muster/model/net_testing.h"

namespace muster::model {
namespace {

using testing::lane;

// Numbers without pattern, the same in every run and without the global generator.
torch::Tensor numbers(const std::vector<int64_t>& shape, uint64_t seed = 1) {
  auto net = std::make_shared<Sequence>();
  const auto size = static_cast<int64_t>(data::Schema::count(shape));
  net->add(std::make_shared<Embedding>(1, size));
  initialise(*net, seed);
  return net->parameters()[0].detach().view(shape).clone();
}

std::shared_ptr<Dropout> dropout(double p, std::shared_ptr<LaneContext> context,
                                 int64_t number = 0) {
  auto layer = std::make_shared<Dropout>(p, std::move(context));
  layer->set_number(number);
  return layer;
}

TEST(Dropout, DependsOnSeedStepLaneAndLayerAlone) {
  const torch::Tensor input = torch::ones({8, 100});
  const auto mask = [&](uint64_t seed, int64_t step, int64_t lane_number, int64_t layer) {
    const auto context = std::make_shared<LaneContext>(LaneContext{seed, step, lane_number});
    return dropout(0.5, context, layer)->forward(input);
  };
  const torch::Tensor reference = mask(1, 2, 3, 4);
  EXPECT_TRUE(mask(1, 2, 3, 4).equal(reference));
  EXPECT_FALSE(mask(9, 2, 3, 4).equal(reference));
  EXPECT_FALSE(mask(1, 9, 3, 4).equal(reference));
  EXPECT_FALSE(mask(1, 2, 9, 4).equal(reference));
  EXPECT_FALSE(mask(1, 2, 3, 9).equal(reference));
  // The global generator neither matters nor moves.
  torch::manual_seed(1);
  const torch::Tensor drawn = torch::rand({4});
  torch::manual_seed(1);
  EXPECT_TRUE(mask(1, 2, 3, 4).equal(reference));
  EXPECT_TRUE(torch::rand({4}).equal(drawn));
}

TEST(Dropout, FollowsItsLaneFromStepToStepInEveryThread) {
  const torch::Tensor input = torch::ones({1000});
  const auto steps = [&] {
    const auto context = lane();
    const auto layer = dropout(0.3, context, 5);
    std::vector<torch::Tensor> outputs;
    for (context->step = 0; context->step < 4; ++context->step) {
      outputs.push_back(layer->forward(input));
    }
    return torch::stack(outputs);
  };
  const torch::Tensor here = steps();
  EXPECT_FALSE(here[0].equal(here[1]));
  std::vector<torch::Tensor> there(3);
  std::vector<std::thread> threads;
  for (auto& result : there) threads.emplace_back([&] { result = steps(); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : there) EXPECT_TRUE(result.equal(here));
}

TEST(Dropout, BackwardUsesTheSameMask) {
  const auto context = lane();
  const auto layer = dropout(0.4, context);
  const torch::Tensor input = numbers({50, 70}).requires_grad_();
  const torch::Tensor output = layer->forward(input);
  context->step = 99;  // the lane has moved on; the mask has not
  output.backward(torch::ones_like(output));
  const torch::Tensor scale = torch::where(output.eq(0), 0.0F, static_cast<float>(1 / (1 - 0.4)));
  EXPECT_TRUE(input.grad().equal(scale));
}

TEST(Dropout, TakesAnyLayoutAndBfloat16) {
  const auto layer = dropout(0.5, lane());
  const torch::Tensor plain = numbers({30, 40});
  const torch::Tensor strided = plain.t().contiguous().t();
  ASSERT_FALSE(strided.is_contiguous());
  EXPECT_TRUE(layer->forward(strided).equal(layer->forward(plain)));
  const torch::Tensor narrow = layer->forward(plain.to(torch::kBFloat16));
  EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(narrow.eq(0).equal(layer->forward(plain).eq(0)));
  EXPECT_THROW(layer->forward(plain.to(torch::kFloat64)), c10::Error);
}

TEST(Dropout, DoesNothingInEvaluation) {
  const auto layer = dropout(0.5, lane());
  layer->eval();
  const torch::Tensor input = numbers({10});
  EXPECT_TRUE(layer->forward(input).is_same(input));
}

TEST(Dropout, LayersOfANetAreNumberedInOrder) {
  const auto net =
      testing::make(testing::zoo("gpt", "{ layers: 2, dropout: 0.1 }"), testing::text());
  int64_t number = 0;
  for (const auto& module : net->modules()) {
    if (const auto* layer = dynamic_cast<const Dropout*>(module.get())) {
      EXPECT_EQ(layer->number(), number++);
    }
  }
  EXPECT_EQ(number, 1 + 2 * 3);
}

TEST(DropoutDeathTest, NeedsItsNumber) {
  Dropout layer(0.5, lane());
  EXPECT_DEATH(layer.forward(torch::ones({3})), "number_dropouts");
}

// Runs both norms over the same batches; torch's own keeps its running statistics by itself.
template <typename Theirs>
void compare_norms(Theirs theirs, const std::vector<int64_t>& shape) {
  auto net = std::make_shared<Sequence>();
  auto ours = std::make_shared<BatchNorm>(BatchNormOptions{.channels = shape[1], .momentum = 0.2});
  net->add(ours);
  initialise(*net, 1);
  const auto statistics = collect_statistics(*net);
  ASSERT_EQ(statistics.size(), 2U);
  EXPECT_EQ(statistics[0].name, "0.running_mean");
  for (uint64_t step = 0; step < 3; ++step) {
    const torch::Tensor data = numbers(shape, step) * 3 + 1;
    const torch::Tensor a = data.clone().requires_grad_();
    const torch::Tensor b = data.clone().requires_grad_();
    const torch::Tensor out = ours->forward(a);
    const torch::Tensor wanted = theirs->forward(b);
    EXPECT_TRUE(out.equal(wanted));
    out.square().sum().backward();
    wanted.square().sum().backward();
    EXPECT_TRUE(a.grad().equal(b.grad()));
    torch::NoGradGuard no_grad;
    for (const Statistic& statistic : statistics) {
      EXPECT_EQ(statistic.latest.scalar_type(), torch::kFloat32);
      EXPECT_FALSE(statistic.latest.requires_grad());
      statistic.running.mul_(1 - statistic.momentum).add_(statistic.latest * statistic.momentum);
    }
    EXPECT_TRUE(statistics[0].running.allclose(theirs->running_mean, 1e-6, 1e-6));
    EXPECT_TRUE(statistics[1].running.allclose(theirs->running_var, 1e-6, 1e-6));
  }
  ours->eval();
  theirs->eval();
  const torch::Tensor data = numbers(shape, 17);
  EXPECT_TRUE(ours->forward(data).allclose(theirs->forward(data), 1e-5, 1e-5));
}

TEST(BatchNorm, IsTorchsOwn) {
  compare_norms(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(5).momentum(0.2)),
                {4, 5, 6, 7});
  compare_norms(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6).momentum(0.2)), {9, 6});
}

TEST(BatchNorm, LeavesTheRunningStatisticsAlone) {
  auto norm = std::make_shared<BatchNorm>(BatchNormOptions{.channels = 3});
  norm->forward(numbers({4, 3, 2, 2}));
  EXPECT_TRUE(norm->named_buffers()["running_mean"].equal(torch::zeros({3})));
  EXPECT_TRUE(norm->named_buffers()["running_var"].equal(torch::ones({3})));
}

TEST(BatchNorm, KeepsOneTensorAndRecoversFromWhatIsNotFinite) {
  auto net = std::make_shared<Sequence>();
  net->add(std::make_shared<BatchNorm>(BatchNormOptions{.channels = 3}));
  initialise(*net, 1);
  const auto before = collect_statistics(*net);
  net->forward(torch::full({4, 3}, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_FALSE(before[0].latest.isfinite().all().item<bool>());
  const torch::Tensor data = numbers({4, 3});
  net->forward(data);
  EXPECT_TRUE(before[0].latest.allclose(data.mean(0)));
  EXPECT_TRUE(before[1].latest.allclose(data.var(0)));
  EXPECT_TRUE(collect_statistics(*net)[0].latest.is_same(before[0].latest));
}

TEST(BatchNorm, TwoPassesBeforeOneBackward) {
  auto net = std::make_shared<Sequence>();
  net->add(std::make_shared<BatchNorm>(BatchNormOptions{.channels = 3}));
  initialise(*net, 1);
  const torch::Tensor loss =
      net->forward(numbers({4, 3}, 1)).pow(3).sum() + net->forward(numbers({4, 3}, 2)).pow(3).sum();
  loss.backward();
  EXPECT_TRUE(net->parameters()[0].grad().isfinite().all().item<bool>());
}

TEST(BatchNorm, RefusesASingleValuePerChannel) {
  BatchNorm norm({.channels = 3});
  try {
    norm.forward(torch::ones({1, 3}));
    FAIL() << "one value has no variance";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("more than one value per channel in each lane"),
              std::string::npos);
  }
}

TEST(SelfAttention, FusedKernelAndOwnStepsAgree) {
  for (const bool causal : {true, false}) {
    auto net = std::make_shared<Sequence>();
    auto attention = std::make_shared<SelfAttention>(
        AttentionOptions{.width = 32, .heads = 4, .causal = causal}, lane());
    net->add(attention);
    initialise(*net, 1);
    const auto pass = [&](bool fused) {
      attention->set_fused(fused);
      const torch::Tensor input = numbers({3, 20, 32}).requires_grad_();
      const torch::Tensor output = attention->forward(input);
      net->zero_grad();
      output.square().sum().backward();
      std::vector<torch::Tensor> results = {output.detach(), input.grad().clone()};
      for (const auto& parameter : net->parameters()) results.push_back(parameter.grad().clone());
      return results;
    };
    const auto fused = pass(true);
    const auto own = pass(false);
    for (size_t i = 0; i < fused.size(); ++i) {
      EXPECT_TRUE(fused[i].allclose(own[i], 1e-4, 1e-5)) << (causal ? "causal " : "") << i;
    }
  }
}

TEST(SelfAttention, WithoutCausalitySeesEverything) {
  auto net = std::make_shared<Sequence>();
  net->add(std::make_shared<TransformerBlock>(
      AttentionOptions{.width = 8, .heads = 2, .causal = false}, lane()));
  initialise(*net, 1);
  const torch::Tensor input = numbers({1, 6, 8});
  torch::Tensor changed = input.clone();
  changed[0][5] += 1;
  EXPECT_FALSE(net->forward(input)[0][0].equal(net->forward(changed)[0][0]));
}

TEST(SelfAttention, DropoutMatchesItsExpectation) {
  const auto context = lane();
  auto net = std::make_shared<Sequence>();
  net->add(std::make_shared<SelfAttention>(
      AttentionOptions{.width = 8, .heads = 2, .causal = true, .dropout = 0.25}, context));
  initialise(*net, 1);
  number_dropouts(*net);
  torch::NoGradGuard no_grad;
  const torch::Tensor input = numbers({2, 6, 8});
  torch::Tensor mean = torch::zeros_like(input);
  constexpr int kSteps = 4000;
  for (context->step = 0; context->step < kSteps; ++context->step) mean += net->forward(input);
  net->eval();
  EXPECT_TRUE((mean / kSteps).allclose(net->forward(input), 0, 0.05));
}

}  // namespace
}  // namespace muster::model
