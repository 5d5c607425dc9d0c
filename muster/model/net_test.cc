// First weights, checks of nets, the registry and the losses.
#include "muster/model/net.h"

#include <cmath>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include "muster/model/dropout.h"
#include "muster/model/layers.h"
#include "muster/model/net_testing.h"

namespace muster::model {
namespace {

using testing::images;
using testing::lane;
using testing::make;
using testing::zoo;

torch::Tensor all_weights(const Net& net) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : net.parameters()) all.push_back(parameter.detach().flatten());
  return torch::cat(all);
}

TEST(Net, EmbeddingsAreKnown) {
  const auto gpt = make(zoo("gpt", "{ layers: 1, heads: 2, width: 8 }"), testing::text(), lane(3));
  EXPECT_EQ(names_of_embeddings(*gpt),
            (std::unordered_set<std::string>{"transformer.wte.weight", "transformer.wpe.weight"}));
  const auto lenet = make(zoo("lenet"), images(), lane(3));
  EXPECT_TRUE(names_of_embeddings(*lenet).empty());
}

// Those that the zoo's nets are made of, all of them: none is run by forward() directly.
TEST(OutputOfLayer, EveryLayerOfTheZooHasOne) {
  for (const auto& [name, args, schema] :
       {std::tuple("lenet", "", images()),
        std::tuple("mlp", "{ hidden: [32, 16], dropout: 0.1 }", images()),
        std::tuple("resnet", "{ size: 8 }", images({3, 32, 32})),
        std::tuple("gpt", "{ layers: 2, heads: 2, width: 8, dropout: 0.1 }", testing::text())}) {
    const torch::NoGradGuard no_grad;
    const auto net = make(zoo(name, args), schema, lane(3));
    net->eval();
    std::vector<int64_t> shape = {2};
    shape.insert(shape.end(), schema.input_shape.begin(), schema.input_shape.end());
    const auto input = schema.input == data::DType::kInt64 ? torch::ones(shape, torch::kInt64)
                                                           : torch::ones(shape);
    const auto expected = net->forward(input);
    for (const auto& entry : net->named_modules()) {
      if (entry.key().empty()) continue;
      torch::Tensor output;
      const auto features = output_of_layer(*net, entry.key(), [&] { output = (*net)(input); });
      if (entry.key().ends_with("attn_dropout")) {  // part of the fused attention
        EXPECT_FALSE(features.ok());
        continue;
      }
      ASSERT_TRUE(features.ok()) << name << ": " << features.error().message();
      EXPECT_EQ(features->size(0), 2) << name << " " << entry.key();
      EXPECT_TRUE(output.equal(expected)) << name << " " << entry.key();
    }
  }
}

TEST(OutputOfLayer, IsWhatTheLayerComputes) {
  const torch::NoGradGuard no_grad;
  const auto net = make(zoo("resnet", "{ size: 8 }"), images({3, 32, 32}), lane(3));
  net->eval();
  const auto input = torch::linspace(-1, 1, int64_t{2} * 3 * 32 * 32).view({2, 3, 32, 32});
  const auto weights = net->named_parameters();
  const auto by_hand = at::conv2d(input, weights["conv1.weight"], {}, 1, 1);
  const auto run = [&] { (*net)(input); };
  EXPECT_TRUE(output_of_layer(*net, "conv1", run)->equal(by_hand));
  // The net goes on with relu_, in place; that is not what the layer put out.
  EXPECT_LT(output_of_layer(*net, "bn1", run)->min().item<float>(), 0);
  EXPECT_EQ(output_of_layer(*net, "fc", run)->sizes(), (torch::IntArrayRef{2, 10}));
}

TEST(OutputOfLayer, ALayerThatIsNotThereIsNamed) {
  const auto net = make(zoo("lenet"), images(), lane(3));
  const auto wrong = output_of_layer(*net, "fc3", [] {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(wrong.error().message(),
              ::testing::AllOf(::testing::HasSubstr("no layer 'fc3'"),
                               ::testing::HasSubstr("conv1, conv2, fc1 and fc2")));
  EXPECT_THAT(output_of_layer(*net, "fc1", [] {}).error().message(),
              ::testing::HasSubstr("no output of its own"));
}

TEST(Initialise, DependsOnTheSeedAloneInEveryThread) {
  for (const char* name : {"lenet", "resnet"}) {
    const torch::Tensor here = all_weights(*make(zoo(name), images(), lane(3)));
    EXPECT_FALSE(all_weights(*make(zoo(name), images(), lane(4))).equal(here));
    std::vector<torch::Tensor> there(3);
    std::vector<std::thread> threads;
    for (auto& result : there) {
      threads.emplace_back([&] { result = all_weights(*make(zoo(name), images(), lane(3))); });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& result : there) EXPECT_TRUE(result.equal(here)) << name;
  }
}

TEST(Initialise, DoesNotDependOnOtherLayersNorTheirOrder) {
  const auto first = std::make_shared<Sequence>();
  first->add(std::make_shared<Linear>(LinearOptions{.in = 30, .out = 20}), "a");
  first->add(std::make_shared<Linear>(LinearOptions{.in = 20, .out = 10}), "b");
  const auto second = std::make_shared<Sequence>();
  second->add(std::make_shared<Embedding>(5, 5), "c");
  second->add(std::make_shared<Linear>(LinearOptions{.in = 20, .out = 10}), "b");
  second->add(std::make_shared<Linear>(LinearOptions{.in = 30, .out = 20}), "a");
  initialise(*first, 1);
  initialise(*second, 1);
  const auto ours = first->named_parameters();
  const auto theirs = second->named_parameters();
  for (const auto& parameter : ours) {
    EXPECT_TRUE(parameter.value().equal(theirs[parameter.key()])) << parameter.key();
  }
  // Bias and weight do not repeat each other's numbers.
  EXPECT_FALSE(ours["a.bias"].equal(ours["a.weight"].flatten().narrow(0, 0, 20)));
}

// Bounds and deviations of PyTorch's defaults, and those of the papers.
TEST(Initialise, FollowsEachLayersScheme) {
  const auto deviation = [](const torch::Tensor& tensor) { return tensor.std().item<double>(); };
  const auto lenet = make(zoo("lenet"), images())->named_parameters();
  const double bound = 1 / std::sqrt(20 * 25.0);
  const torch::Tensor weight = lenet["conv2.weight"];
  EXPECT_LE(weight.abs().max().item<double>(), bound);
  EXPECT_GT(weight.abs().max().item<double>(), 0.99 * bound);
  EXPECT_NEAR(deviation(weight), bound / std::sqrt(3.0), 0.02 * bound);
  EXPECT_LE(lenet["conv2.bias"].abs().max().item<double>(), bound);

  const auto resnet = make(zoo("resnet"), images())->named_parameters();
  EXPECT_NEAR(deviation(resnet["layer3.1.conv1.weight"]), std::sqrt(2 / (64 * 9.0)), 0.002);
  EXPECT_TRUE(resnet["bn1.weight"].equal(torch::ones({16})));
  EXPECT_TRUE(resnet["bn1.bias"].equal(torch::zeros({16})));

  const auto gpt = make(zoo("gpt", "bias: true"), testing::text())->named_parameters();
  EXPECT_NEAR(deviation(gpt["transformer.wte.weight"]), 0.02, 0.001);
  EXPECT_NEAR(deviation(gpt["transformer.h.1.mlp.c_fc.weight"]), 0.02, 0.001);
  EXPECT_NEAR(deviation(gpt["transformer.h.1.mlp.c_proj.weight"]), 0.02 / std::sqrt(8.0), 0.0005);
  EXPECT_EQ(gpt["transformer.h.1.mlp.c_fc.bias"].abs().max().item<float>(), 0);
}

// A net of one's own around one module of torch's.
template <typename Module>
class Custom : public Net {
 public:
  explicit Custom(std::shared_ptr<Module> module)
      : module_(register_module("inner", std::move(module))) {}
  torch::Tensor forward(const torch::Tensor& input) override { return input; }

 private:
  std::shared_ptr<Module> module_;
};

template <typename Module>
std::string objection(const torch::nn::ModuleHolder<Module>& module) {
  const auto net = std::make_shared<Custom<Module>>(module.ptr());
  const Status status = check_net(*net);
  return status.ok() ? "" : status.error().message();
}

TEST(CheckNet, RefusesWhatCannotKeepBits) {
  namespace nn = torch::nn;
  EXPECT_EQ(objection(nn::Linear(3, 4)), "");
  EXPECT_EQ(
      objection(nn::Dropout(0.5)),
      "module 'inner' (torch::nn::Dropout) draws from torch's global random generator, so bits "
      "could not be kept; use muster::model::Dropout instead");
  EXPECT_EQ(
      objection(nn::BatchNorm2d(4)),
      "module 'inner' (torch::nn::BatchNorm2d) updates its running statistics by itself, once "
      "per lane, so bits could not be kept; use muster::model::BatchNorm instead");
  EXPECT_EQ(objection(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4))), "");
  EXPECT_NE(objection(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).track_running_stats(true))),
            "");
  EXPECT_EQ(objection(nn::LSTM(nn::LSTMOptions(3, 3).num_layers(2))), "");
  EXPECT_NE(objection(nn::LSTM(nn::LSTMOptions(3, 3).num_layers(2).dropout(0.1))), "");
  EXPECT_NE(objection(nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).dropout(0.1))),
            "");
  EXPECT_NE(objection(nn::RReLU()), "");
  EXPECT_EQ(objection(nn::Embedding(5, 3)), "");
  EXPECT_EQ(objection(nn::Embedding(nn::EmbeddingOptions(5, 3).max_norm(1.0))),
            "module 'inner' (torch::nn::Embedding) has max_norm, which changes weights in forward, "
            "so bits could not be kept; leave max_norm out and clip gradients "
            "(optimizer.clip.norm) instead");
  EXPECT_EQ(objection(nn::EmbeddingBag(5, 3)), "");
  EXPECT_NE(objection(nn::EmbeddingBag(nn::EmbeddingBagOptions(5, 3).max_norm(1.0))), "");
  EXPECT_EQ(objection(nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(3).output_size(5))),
            "module 'inner' (torch::nn::FractionalMaxPool2d) draws from torch's global random "
            "generator, so bits could not be kept; use torch::nn::MaxPool2d or AdaptiveMaxPool2d "
            "instead");
  EXPECT_NE(objection(nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(3).output_size(5))),
            "");
}

class Counts : public Net {
 public:
  Counts() { register_buffer("calls", torch::zeros({1})); }
  torch::Tensor forward(const torch::Tensor& input) override { return input; }
};

TEST(CheckNet, RefusesBuffersThatAreNoStatistics) {
  EXPECT_EQ(check_net(*std::make_shared<Counts>()).error().message(),
            "buffer 'calls' is no running statistic, so a checkpoint would not contain it and "
            "workers could differ in it; make a constant a plain member of the module, and declare "
            "a running statistic with KeepsStatistics (muster/model/net.h)");
  EXPECT_TRUE(check_net(*make(zoo("resnet"), images())).ok());
}

class Tied : public Net {
 public:
  Tied() {
    const torch::Tensor weight = register_parameter("a", torch::ones({3}));
    register_parameter("b", weight);
  }
  torch::Tensor forward(const torch::Tensor& input) override { return input; }
};

class Doubles : public Net {
 public:
  Doubles() { register_parameter("a", torch::ones({3}, torch::kFloat64)); }
  torch::Tensor forward(const torch::Tensor& input) override { return input; }
};

TEST(CheckNet, RefusesParametersThatDoNotFitTheWeightBuffer) {
  EXPECT_EQ(check_net(*std::make_shared<Tied>()).error().message(),
            "parameters 'a' and 'b' are the same tensor; register it once and use it from there");
  EXPECT_EQ(check_net(*std::make_shared<Doubles>()).error().message(),
            "parameter 'a' is of type Double; Muster keeps weights in float32 (job key 'precision' "
            "decides what they are computed with)");
}

config::ModelOptions use(const std::string& name) {
  config::ModelOptions options;
  options.use = name;
  return options;
}

TEST(Registry, BuildsAModelOfOnesOwn) {
  Registry registry = Registry::builtin();
  registry.add_model(
      "mine", [](const config::Node&, const data::Schema&, const std::shared_ptr<LaneContext>&) {
        return Result<std::shared_ptr<Net>>(
            std::make_shared<Custom<torch::nn::LinearImpl>>(torch::nn::Linear(30, 40).ptr()));
      });
  const auto first = build(registry, use("mine"), images(), lane(5)).value();
  torch::rand({10});  // whoever draws in between
  const auto second = build(registry, use("mine"), images(), lane(5)).value();
  initialise(*second, 5);  // leaves torch's own modules as they are
  EXPECT_TRUE(all_weights(*first).equal(all_weights(*second)));
  EXPECT_TRUE(first->is_training());
}

TEST(Registry, TurnsExceptionsAndRefusalsIntoSentences) {
  Registry registry = Registry::builtin();
  registry.add_model("throws",
                     [](const config::Node&, const data::Schema&,
                        const std::shared_ptr<LaneContext>&) -> Result<std::shared_ptr<Net>> {
                       TORCH_CHECK(false, "no such thing");
                     });
  registry.add_model(
      "drops", [](const config::Node&, const data::Schema&, const std::shared_ptr<LaneContext>&) {
        return Result<std::shared_ptr<Net>>(
            std::make_shared<Custom<torch::nn::DropoutImpl>>(torch::nn::Dropout().ptr()));
      });
  EXPECT_EQ(build(registry, use("throws"), images(), lane()).error().message(),
            "the model could not be made: no such thing");
  EXPECT_THAT(build(registry, use("drops"), images(), lane()).error().message(),
              ::testing::HasSubstr("use muster::model::Dropout"));
  EXPECT_THAT(
      build(registry, use("dorps"), images(), lane()).error().message(),
      ::testing::StartsWith("model.use: there is no model 'dorps' (did you mean 'drops'?)"));
}

TEST(RegistryDeathTest, ANameCannotBeTakenTwice) {
  Registry registry = Registry::builtin();
  EXPECT_DEATH(registry.add_loss("mse", {}, {}), "there is a loss 'mse' already");
}

TEST(Loss, FitsTheTargetsOrSaysSo) {
  const Registry registry = Registry::builtin();
  config::ModelOptions options;
  EXPECT_EQ(find_loss(registry, options, images()).value().name, "cross_entropy");
  EXPECT_EQ(find_loss(registry, options, testing::values()).error().message(),
            "model.loss: 'cross_entropy' needs class numbers as targets, but the data has values; "
            "use mse");
  options.loss = "mse";
  EXPECT_EQ(find_loss(registry, options, images()).error().message(),
            "model.loss: 'mse' needs values as targets, but the data has class numbers; use "
            "cross_entropy");
  options.loss = "cross_entropi";
  EXPECT_EQ(
      find_loss(registry, options, images()).error().message(),
      "model.loss: there is no loss 'cross_entropi' (did you mean 'cross_entropy'?); there are "
      "click, cross_entropy and mse");
}

TEST(Loss, CrossEntropyIsAMeanOverSamplesAndPlaces) {
  const auto loss = find_loss(Registry::builtin(), {}, images()).value();
  const torch::Tensor scores = torch::tensor({{2.0F, 0.0F, 0.0F}, {0.0F, 1.0F, 0.0F}});
  const torch::Tensor target = torch::tensor({0, 2});
  const double first = std::log(std::exp(2.0) + 2) - 2;
  const double second = std::log(std::exp(1.0) + 2);
  EXPECT_NEAR(loss.compute(scores, target).item<double>(), (first + second) / 2, 1e-6);
  ASSERT_EQ(loss.metrics.size(), 1U);
  EXPECT_EQ(loss.metrics[0].name, "accuracy");
  EXPECT_TRUE(loss.metrics[0].higher_is_better);
  EXPECT_EQ(loss.metrics[0].measure(scores, target), std::make_pair(1.0, 2.0));
  // The same two as places of one text, in bfloat16: computed in float32.
  const torch::Tensor narrow = scores.unsqueeze(0).to(torch::kBFloat16);
  EXPECT_EQ(loss.compute(narrow, target.unsqueeze(0)).scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.compute(narrow, target.unsqueeze(0)).item<double>(), (first + second) / 2, 1e-6);
  EXPECT_EQ(loss.metrics[0].measure(narrow, target.unsqueeze(0)), std::make_pair(1.0, 2.0));
  EXPECT_THROW(loss.compute(scores, target.unsqueeze(0)), c10::Error);
}

TEST(Loss, MseNeverBroadcasts) {
  config::ModelOptions options;
  options.loss = "mse";
  const auto loss = find_loss(Registry::builtin(), options, testing::values()).value();
  const torch::Tensor output = torch::tensor({{1.0F}, {2.0F}, {4.0F}});
  const torch::Tensor target = torch::tensor({1.0F, 4.0F, 1.0F});
  EXPECT_NEAR(loss.compute(output, target).item<double>(), (0 + 4 + 9) / 3.0, 1e-6);
  EXPECT_EQ(loss.metrics[0].measure(output, target), std::make_pair(5.0, 3.0));
  EXPECT_FALSE(loss.metrics[0].higher_is_better);
  EXPECT_THROW(loss.compute(output.expand({3, 3}), target), c10::Error);
}

}  // namespace
}  // namespace muster::model
