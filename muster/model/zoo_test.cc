#include "muster/model/zoo.h"

#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/model/net_testing.h"

namespace muster::model {
namespace {

using testing::complaint;
using ::testing::ElementsAre;
using testing::images;
using ::testing::IsSupersetOf;
using testing::lane;
using testing::make;
using testing::parameter_count;
using testing::parameter_names;
using testing::zoo;

struct Example {
  const char* name;
  const char* args;
  data::Schema schema;
  int64_t parameters;
};

// The counts are those of the same nets in Python: torchvision for 18, 34 and 50.
std::vector<Example> examples() {
  return {
      {"lenet", "", images(), 431'080},
      {"lenet", "", images({3, 32, 32}), 657'080},
      {"mlp", "", images(), 5'824'522},
      {"mlp", "{ hidden: [32], dropout: 0.1, activation: tanh }", images(), 25'450},
      {"resnet", "{ size: 8 }", images({3, 32, 32}), 78'042},
      {"resnet", "{ size: 20 }", images({3, 32, 32}), 272'474},
      {"resnet", "{ size: 18, stem: large }", images({3, 64, 64}, 1000), 11'689'512},
      {"resnet", "{ size: 34 }", images({3, 64, 64}, 1000), 21'797'672},
      {"resnet", "{ size: 50 }", images({3, 64, 64}, 1000), 25'557'032},
      {"gpt", "", testing::text(64), 804'096},
      {"gpt", "{ layers: 2, heads: 2, width: 32, dropout: 0.1, bias: true }", testing::text(),
       28'064},
  };
}

TEST(Zoo, HasTheRightNumberOfParameters) {
  for (const Example& example : examples()) {
    const auto net =
        build(Registry::builtin(), zoo(example.name, example.args), example.schema, lane()).value();
    EXPECT_EQ(parameter_count(*net), example.parameters) << example.name << " " << example.args;
  }
}

TEST(Zoo, EveryParameterGetsAFiniteGradient) {
  for (const Example& example : examples()) {
    if (example.parameters > 20'000'000) continue;  // the small sizes have all their parts
    SCOPED_TRACE(std::string(example.name) + " " + example.args);
    const auto options = zoo(example.name, example.args);
    const auto net = make(options, example.schema);
    const auto loss = find_loss(Registry::builtin(), options, example.schema).value();
    const torch::Tensor output = net->forward(testing::samples(example.schema, 2));
    const torch::Tensor value = loss.compute(output, testing::targets(example.schema, 2));
    ASSERT_EQ(value.dim(), 0);
    ASSERT_TRUE(std::isfinite(value.item<float>()));
    value.backward();
    for (const auto& parameter : net->named_parameters()) {
      const torch::Tensor& gradient = parameter.value().grad();
      ASSERT_TRUE(gradient.defined()) << parameter.key();
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.key();
      EXPECT_GT(gradient.abs().max().item<float>(), 0) << parameter.key();
    }
  }
}

TEST(Zoo, NamesAreThoseOfPython) {
  const auto names = [](const config::ModelOptions& options, const data::Schema& schema) {
    return parameter_names(*build(Registry::builtin(), options, schema, lane()).value());
  };
  EXPECT_THAT(names(zoo("lenet"), images()),
              ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                          "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_THAT(names(zoo("mlp"), images()), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight",
                                                       "fc2.bias", "fc3.weight", "fc3.bias"));
  EXPECT_THAT(
      names(zoo("gpt", "{ layers: 1 }"), testing::text()),
      ElementsAre("transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                  "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight",
                  "transformer.h.0.ln_2.weight", "transformer.h.0.mlp.c_fc.weight",
                  "transformer.h.0.mlp.c_proj.weight", "transformer.ln_f.weight"));
  EXPECT_THAT(names(zoo("resnet", "{ size: 50 }"), images({3, 64, 64})),
              IsSupersetOf({"conv1.weight", "bn1.weight", "layer1.0.conv3.weight",
                            "layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias",
                            "layer4.2.bn3.weight", "fc.bias"}));
  EXPECT_THAT(names(zoo("resnet", "{ size: 8 }"), images({3, 32, 32})),
              ElementsAre("conv1.weight", "bn1.weight", "bn1.bias",                             //
                          "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias",  //
                          "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer1.0.bn2.bias",  //
                          "layer2.0.conv1.weight", "layer2.0.bn1.weight", "layer2.0.bn1.bias",  //
                          "layer2.0.conv2.weight", "layer2.0.bn2.weight", "layer2.0.bn2.bias",  //
                          "layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight",       //
                          "layer2.0.downsample.1.bias",                                         //
                          "layer3.0.conv1.weight", "layer3.0.bn1.weight", "layer3.0.bn1.bias",  //
                          "layer3.0.conv2.weight", "layer3.0.bn2.weight", "layer3.0.bn2.bias",  //
                          "layer3.0.downsample.0.weight", "layer3.0.downsample.1.weight",       //
                          "layer3.0.downsample.1.bias",                                         //
                          "fc.weight", "fc.bias"));
}

TEST(Zoo, StatisticsHaveFullNames) {
  const auto net = make(zoo("resnet", "{ size: 8 }"), images());
  const auto statistics = collect_statistics(*net);
  ASSERT_EQ(statistics.size(), 2 * 9U);
  EXPECT_EQ(statistics[0].name, "bn1.running_mean");
  EXPECT_EQ(statistics[1].name, "bn1.running_var");
  EXPECT_EQ(statistics[2].name, "layer1.0.bn1.running_mean");
  const auto buffers = net->named_buffers();
  for (const Statistic& statistic : statistics) {
    ASSERT_NE(buffers.find(statistic.name), nullptr) << statistic.name;
    EXPECT_TRUE(buffers[statistic.name].is_same(statistic.running));
  }
}

TEST(Zoo, OutputsHaveTheShapeOfTheTargets) {
  EXPECT_EQ(make(zoo("lenet"), images({3, 32, 32}))
                ->forward(testing::samples(images({3, 32, 32}), 3))
                .sizes(),
            (std::vector<int64_t>{3, 10}));
  EXPECT_EQ(make(zoo("resnet", "{ size: 18 }"), images({3, 24, 32}, 7))
                ->forward(testing::samples(images({3, 24, 32}, 7), 2))
                .sizes(),
            (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(
      make(zoo("gpt"), testing::text())->forward(testing::samples(testing::text(), 2)).sizes(),
      (std::vector<int64_t>{2, 16, 65}));
  // Values as targets: one output.
  EXPECT_EQ(
      make(zoo("mlp"), testing::values())->forward(testing::samples(testing::values(), 4)).sizes(),
      (std::vector<int64_t>{4, 1}));
}

TEST(Gpt, KnowsNothingAtFirst) {
  const auto schema = testing::text(64);
  const auto net = make(zoo("gpt"), schema);
  const auto loss = find_loss(Registry::builtin(), zoo("gpt"), schema).value();
  torch::NoGradGuard no_grad;
  const double value =
      loss.compute(net->forward(testing::samples(schema, 4)), testing::targets(schema, 4))
          .item<double>();
  EXPECT_NEAR(value, std::log(65.0), 0.1);
}

TEST(Gpt, IsCausal) {
  const auto schema = testing::text(16);
  for (const char* args : {"{ layers: 2 }", "{ layers: 2, dropout: 0.2 }"}) {
    const auto net = make(zoo("gpt", args), schema);  // in training: with dropout, its own steps
    torch::NoGradGuard no_grad;
    const torch::Tensor tokens = testing::samples(schema, 1);
    torch::Tensor changed = tokens.clone();
    changed[0][9] = (tokens[0][9] + 1) % 65;
    const torch::Tensor before = net->forward(tokens);
    const torch::Tensor after = net->forward(changed);
    EXPECT_TRUE(before.narrow(1, 0, 9).equal(after.narrow(1, 0, 9))) << args;
    for (int64_t place = 9; place < 16; ++place) {
      EXPECT_FALSE(before[0][place].equal(after[0][place])) << args << ", place " << place;
    }
  }
}

TEST(Gpt, TakesShorterTextThanItsContext) {
  const auto net = make(zoo("gpt", "{ context: 32 }"), testing::text(16));
  EXPECT_EQ(net->named_parameters()["transformer.wpe.weight"].size(0), 32);
  EXPECT_EQ(net->forward(torch::zeros({1, 5}, torch::kInt64)).sizes(),
            (std::vector<int64_t>{1, 5, 65}));
}

// Bits of a training pass must not depend on the thread it runs in, nor on what ran before.
TEST(Zoo, APassGivesTheSameBitsInEveryThread) {
  for (const char* args : {"{ layers: 2 }", "{ layers: 2, dropout: 0.1 }"}) {
    const auto schema = testing::text(64);
    const auto gradients = [&] {
      at::set_num_threads(1);
      const auto net = make(zoo("gpt", args), schema);
      const auto loss = find_loss(Registry::builtin(), zoo("gpt"), schema).value();
      loss.compute(net->forward(testing::samples(schema, 3)), testing::targets(schema, 3))
          .backward();
      std::vector<torch::Tensor> all;
      for (const auto& parameter : net->parameters()) all.push_back(parameter.grad().flatten());
      return torch::cat(all);
    };
    const torch::Tensor here = gradients();
    std::vector<torch::Tensor> there(3);
    std::vector<std::thread> threads;
    for (auto& result : there) threads.emplace_back([&] { result = gradients(); });
    for (auto& thread : threads) thread.join();
    for (const auto& result : there) EXPECT_TRUE(result.equal(here)) << args;
  }
}

TEST(Zoo, SaysWhatIsWrongWithArguments) {
  EXPECT_EQ(complaint(zoo("lenett"), images()),
            "model.zoo: there is no model 'lenett' (did you mean 'lenet'?); there are deepfm, "
            "dlrm, gpt, lenet, mlp, resnet, two-tower and wide-deep");
  EXPECT_EQ(complaint(zoo("lenet"), testing::text()),
            "model lenet needs images (channels x height x width), but the data's samples are "
            "tokens, 16");
  EXPECT_EQ(complaint(zoo("lenet"), images({1, 12, 12})),
            "model lenet needs images of at least 16x16, but the data's are 1x12x12");
  EXPECT_EQ(complaint(zoo("mlp", "hiden: [3]"), images()),
            "job.yaml:1:1: the mlp model has no option 'hiden' (did you mean 'hidden'?)");
  EXPECT_EQ(complaint(zoo("mlp", "activation: rulo"), images()),
            "job.yaml:1:13: activation must be one of gelu, relu, sigmoid, silu or tanh, not "
            "'rulo'");
  EXPECT_EQ(complaint(zoo("mlp", "dropout: 1"), images()),
            "job.yaml:1:10: dropout must be at least 0 and below 1, not 1");
  EXPECT_EQ(complaint(zoo("resnet", "size: 21"), images()),
            "job.yaml:1:7: size must be one of 8, 14, 18, 20, 32, 34, 44, 50 and 56, not 21");
  EXPECT_EQ(complaint(zoo("gpt"), images()),
            "model gpt needs text, but the data's samples are 1x28x28; use data of format text");
  EXPECT_EQ(complaint(zoo("gpt", "heads: 3"), testing::text()),
            "job.yaml:1:1: width 128 of the gpt model must be a multiple of its 3 heads");
  EXPECT_EQ(complaint(zoo("gpt", "context: 8"), testing::text()),
            "job.yaml:1:1: context 8 of the gpt model is shorter than the data's samples of 16 "
            "tokens");
  EXPECT_EQ(complaint(config::ModelOptions{}, images()),
            "the job has no model; give one of model.zoo, model.layers, model.file and model.use");
}

}  // namespace
}  // namespace muster::model
