// Nets that were exported from PyTorch: tests/pt2/make_testdata.py has their Python.
#include "muster/model/pt2_net.h"

#include <algorithm>
#include <map>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/utils.h>

#include "muster/model/generator_watch.h"
#include "muster/model/net_testing.h"
#include "muster/model/pt2_replacements.h"
#include "muster/pt2/pt2_testing.h"

namespace muster::model {
namespace {

using ::testing::AllOf;
using testing::complaint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::images;
using testing::lane;
using testing::make;
using testing::samples;

const data::Schema kImages = images({1, 6, 6}, 3);

data::Schema rows(int64_t classes = 3) { return images({4}, classes); }

data::Schema tokens() {
  return {.input = data::DType::kInt64,
          .input_shape = {5},
          .target_shape = {},
          .classes = 11,
          .vocabulary = {}};
}

config::ModelOptions file(const std::string& name, const std::string& loss = "cross_entropy") {
  config::ModelOptions options;
  options.file = pt2::testdata(name);
  options.loss = loss;
  return options;
}

// A file of testdata with some text of its graph replaced.
class Edited {
 public:
  Edited(const std::string& name, const std::string& from, const std::string& to) {
    const auto original = pt2::File::open(pt2::testdata(name)).value();
    std::vector<pt2::TextEntry> entries;
    for (const auto& [entry, data] : original.entries()) {
      std::string text(reinterpret_cast<const char*>(data.data()), data.size());
      if (entry.ends_with("models/model.json")) {
        const auto at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
      }
      entries.push_back({entry, std::move(text)});
    }
    bytes_ = pt2::zip_of(entries);
  }

  pt2::File file() const { return pt2::File::parse(pt2::bytes_of(bytes_), "edited.pt2").value(); }
  std::string complaint(const data::Schema& schema) const {
    config::ModelOptions options;
    options.file = "edited.pt2";
    const auto opened = file();
    const auto net = build(Registry::builtin(), options, schema, lane(), &opened);
    return net.ok() ? "" : net.error().message();
  }

 private:
  std::string bytes_;
};

std::map<std::string, torch::Tensor> gradients(Net& net, const torch::Tensor& output,
                                               const torch::Tensor& target) {
  net.zero_grad();
  at::cross_entropy_loss(output, target).backward();
  std::map<std::string, torch::Tensor> all;
  for (const auto& parameter : net.named_parameters()) {
    all[parameter.key()] = parameter.value().grad().clone();
  }
  return all;
}

TEST(Pt2Net, HasTheBitsOfTheSameModelInCpp) {
  const auto net = make(file("plain"), kImages);
  auto weights = net->named_parameters();
  EXPECT_THAT(weights.keys(), ElementsAre("conv.weight", "conv.bias", "out.weight", "out.bias"));
  const auto input = samples(kImages, 7);
  const auto target = testing::targets(kImages, 7);
  const auto output = net->forward(input);
  const auto found = gradients(*net, output, target);

  const auto hidden =
      at::max_pool2d(at::conv2d(input, weights["conv.weight"], weights["conv.bias"]).relu(), 2);
  const auto expected = at::linear(hidden.flatten(1), weights["out.weight"], weights["out.bias"]);
  EXPECT_TRUE(output.equal(expected * 2));
  for (const auto& [name, gradient] : gradients(*net, expected * 2, target)) {
    EXPECT_TRUE(gradient.equal(found.at(name))) << name;
  }
}

TEST(Pt2Net, HasTheWeightsOfTheFileWhateverTheSeed) {
  const auto one = make(file("net"), kImages, lane(1));
  const auto other = make(file("net"), kImages, lane(2));
  const auto opened = pt2::File::open(pt2::testdata("net")).value();
  for (const auto& input : opened.program().inputs) {
    if (input.kind != pt2::Input::Kind::kParameter || input.name == "fc2.weight") continue;
    const auto* parameter = one->named_parameters().find(input.name);
    ASSERT_NE(parameter, nullptr) << input.name;
    EXPECT_TRUE(parameter->equal(tensor_of(input.weight))) << input.name;
    EXPECT_TRUE(parameter->equal(other->named_parameters()[input.name])) << input.name;
  }
}

TEST(Pt2Net, TiedWeightsAreOneParameterWithTheGradientsOfBothUses) {
  const auto net = make(file("net"), kImages);
  auto weights = net->named_parameters();
  EXPECT_TRUE(weights.contains("fc1.weight"));
  EXPECT_FALSE(weights.contains("fc2.weight"));
  net->eval();
  const auto input = samples(kImages, 4);
  const auto target = testing::targets(kImages, 4);
  const auto found = gradients(*net, net->forward(input), target);

  const auto opened = pt2::File::open(pt2::testdata("net")).value();
  const auto statistics = collect_statistics(*net);
  auto x = at::batch_norm(at::conv2d(input, weights["conv.weight"], weights["conv.bias"]),
                          weights["norm.weight"], weights["norm.bias"], statistics[0].running,
                          statistics[1].running, false, 0.2, 1e-5, false);
  x = at::max_pool2d(x.relu(), 2).permute({0, 2, 3, 1}).reshape({-1, 8}) + 0.125;
  x = at::linear(x, weights["fc1.weight"], weights["fc1.bias"]).tanh();
  x = at::linear(x, weights["fc1.weight"], weights["fc2.bias"]);
  x = at::linear(x, weights["out.weight"], weights["out.bias"]);
  const auto expected = gradients(*net, x, target);
  EXPECT_TRUE(expected.at("fc1.weight").equal(found.at("fc1.weight")));
  EXPECT_TRUE(expected.at("conv.weight").equal(found.at("conv.weight")));
}

TEST(Pt2Net, DropoutFollowsSeedStepLaneAndLayer) {
  const auto context = lane(5);
  const auto net = make(file("net"), kImages, context);
  const auto input = samples(kImages, 16);
  const auto at = [&](int64_t step, int64_t lane) {
    context->step = step;
    context->lane = lane;
    return net->forward(input).detach();
  };
  const auto first = at(3, 1);
  EXPECT_FALSE(first.equal(at(4, 1)));
  EXPECT_FALSE(first.equal(at(3, 2)));
  EXPECT_TRUE(first.equal(at(3, 1)));
  const auto again = make(file("net"), kImages, context);
  EXPECT_TRUE(first.equal(again->forward(input)));
  net->eval();
  EXPECT_TRUE(at(3, 1).equal(at(4, 2)));
}

TEST(Pt2Net, DropoutInPlaceChangesItsInput) {
  const auto net = make(file("in-place"), rows(4));
  auto weights = net->named_parameters();
  const auto input = samples(rows(4), 32);
  const auto linear = at::linear(input, weights["fc.weight"], weights["fc.bias"]);
  // Each element is dropped, or twice what it was: by either dropout, and added to itself after it.
  const auto factors = net->forward(input) / linear;
  EXPECT_TRUE(factors.eq(0).logical_or(factors.sub(16).abs().lt(1e-3)).all().item<bool>());
  EXPECT_GT(factors.eq(0).sum().item<int64_t>(), 64);
  EXPECT_GT(factors.ne(0).sum().item<int64_t>(), 8);
  net->forward(input).sum().backward();
  net->eval();
  EXPECT_TRUE(net->forward(input).equal(linear * 4));
}

// The mask of dropout of channels is the same for all of a channel.
TEST(Pt2Net, DropoutOfChannelsDropsWholeChannels) {
  const auto opened = pt2::File::open(pt2::testdata("net")).value();
  const auto& nodes = opened.program().nodes;
  const auto node = std::ranges::find_if(nodes, [](const pt2::Node& one) {
    return one.target.starts_with("torch.ops.aten.feature_dropout");
  });
  ASSERT_NE(node, nodes.end());
  auto dropout = std::make_shared<Dropout>(0.25, lane());
  dropout->set_number(0);
  const std::string name = "net.pt2";
  const Pt2Values fixed(opened.program().slots.size());
  auto made = make_feature_dropout(*node, {fixed, name}, dropout).value();
  Pt2Values values = fixed;
  const auto input = std::get<pt2::TensorArg>(node->inputs[0].value).slot;
  values[static_cast<size_t>(input)] = torch::ones({50, 8, 3, 3});
  made->run(values, true);
  const auto output = values[static_cast<size_t>(node->outputs[0].slots[0])].toTensor();
  const auto sums = output.sum({2, 3});
  EXPECT_TRUE(sums.eq(0).logical_or(sums.sub(12).abs().lt(1e-4)).all().item<bool>());
  const auto dropped = sums.eq(0).sum().item<int64_t>();
  EXPECT_GT(dropped, 60);
  EXPECT_LT(dropped, 140);
}

TEST(Pt2Net, BatchNormLeavesItsStatisticsToTheTrainer) {
  const auto net = make(file("net"), kImages);
  const auto statistics = collect_statistics(*net);
  ASSERT_EQ(statistics.size(), 2U);
  EXPECT_EQ(statistics[0].name, "norm.running_mean");
  EXPECT_EQ(statistics[1].name, "norm.running_var");
  EXPECT_EQ(statistics[0].momentum, 0.2);
  const auto before = statistics[0].running.clone();
  const auto input = samples(kImages, 8);
  net->forward(input);
  EXPECT_TRUE(statistics[0].running.equal(before));
  auto weights = net->named_parameters();
  const auto x = at::conv2d(input, weights["conv.weight"], weights["conv.bias"]).detach();
  EXPECT_TRUE(statistics[0].latest.allclose(x.mean({0, 2, 3})));
  EXPECT_TRUE(statistics[1].latest.allclose(x.var({0, 2, 3}, true)));
}

TEST(Pt2Net, ALaneMayHaveOneSample) {
  for (const char* name : {"plain", "net"}) {
    const auto net = make(file(name), kImages);
    const auto input = samples(kImages, 5);
    EXPECT_EQ(net->forward(input.narrow(0, 2, 1)).sizes(), (std::vector<int64_t>{1, 3}));
    net->eval();
    const auto alone = net->forward(input.narrow(0, 2, 1));
    EXPECT_TRUE(alone.allclose(net->forward(input).narrow(0, 2, 1))) << name;
  }
  const auto net = make(file("attention"), tokens());
  EXPECT_EQ(net->forward(samples(tokens(), 1)).sizes(), (std::vector<int64_t>{1, 3}));
}

TEST(Pt2Net, DrawsNothingFromTorchsGenerator) {
  for (const auto& [name, schema] : {std::pair("net", kImages), std::pair("attention", tokens())}) {
    const auto net = make(file(name), schema);
    const GeneratorWatch watch;
    net->forward(samples(schema, 4)).sum().backward();
    EXPECT_FALSE(watch.moved()) << name;
    torch::rand(1);
    EXPECT_TRUE(watch.moved());
  }
}

TEST(Pt2Net, KnowsItsEmbeddings) {
  EXPECT_THAT(names_of_embeddings(*make(file("attention"), tokens())),
              ElementsAre("embedding.weight"));
}

TEST(Pt2Net, ModulesOfPythonAreLayers) {
  const torch::NoGradGuard no_grad;
  const auto net = make(file("net"), kImages);
  net->eval();
  const auto input = samples(kImages, 3);
  const auto convolved = output_of_layer(*net, "conv", [&] { net->forward(input); });
  ASSERT_TRUE(convolved.ok()) << convolved.error().message();
  auto weights = net->named_parameters();
  EXPECT_TRUE(convolved->equal(at::conv2d(input, weights["conv.weight"], weights["conv.bias"])));
  const auto missing = output_of_layer(*net, "cov", [&] { net->forward(input); });
  EXPECT_THAT(missing.error().message(),
              AllOf(HasSubstr("conv"), ::testing::Not(HasSubstr("#dropout"))));
}

TEST(Pt2Net, MayHaveItsOwnLoss) {
  const auto options = file("with-loss", "file");
  const auto net = make(options, rows());
  const auto loss = find_loss(Registry::builtin(), options, rows());
  ASSERT_TRUE(loss.ok()) << loss.error().message();
  ASSERT_EQ(loss->metrics.size(), 1U);
  EXPECT_EQ(loss->metrics[0].name, "accuracy");
  auto* with_loss = dynamic_cast<ComputesLoss*>(net.get());
  ASSERT_NE(with_loss, nullptr);
  const auto input = samples(rows(), 6);
  const auto target = testing::targets(rows(), 6);
  const auto [output, value] = with_loss->forward_with_loss(input, target);
  auto weights = net->named_parameters();
  const auto scores = at::linear(input, weights["fc.weight"], weights["fc.bias"]);
  EXPECT_TRUE(output.equal(scores));
  EXPECT_TRUE(
      value.equal(at::cross_entropy_loss(scores, target, {}, at::Reduction::Mean, -100, 0.1)));
  EXPECT_TRUE(net->forward(input).equal(scores));
}

TEST(Pt2Net, RefusesWhatDoesNotFitTheJob) {
  EXPECT_THAT(complaint(file("plain"), images({1, 28, 28})),
              AllOf(HasSubstr("plain.pt2' takes float32 [any, 1, 6, 6] as 'x'"),
                    HasSubstr("the inputs of the data are float32 [samples, 1, 28, 28]")));
  EXPECT_THAT(complaint(file("attention"), rows()), HasSubstr("takes int64 [any, 5]"));
  EXPECT_THAT(complaint(file("with-loss"), rows()), HasSubstr("set model.loss to file"));
  EXPECT_THAT(complaint(file("plain", "file"), kImages), HasSubstr("takes inputs only"));
  EXPECT_THAT(complaint(file("none"), kImages), HasSubstr("none.pt2"));
  auto options = file("plain");
  options.args = testing::yaml("{ width: 3 }");
  EXPECT_THAT(complaint(options, kImages), HasSubstr("width"));
}

TEST(Pt2Net, FreezesParametersThatNothingUses) {
  const auto net = make(file("unused"), rows());
  auto weights = net->named_parameters();
  ASSERT_EQ(weights.size(), 4U);
  EXPECT_TRUE(weights["fc.weight"].requires_grad());
  EXPECT_TRUE(weights["fc.bias"].requires_grad());
  EXPECT_FALSE(weights["spare.weight"].requires_grad());
  EXPECT_FALSE(weights["spare.bias"].requires_grad());
}

TEST(Pt2Net, RefusesABufferThatIsTheMemoryOfAParameter) {
  EXPECT_THAT(complaint(file("alias"), rows()),
              HasSubstr("the buffer 'mirror' shares its memory with the parameter 'fc.bias'"));
}

TEST(Pt2Net, RefusesWhatDrawsOrChangesWithTheLineOfPython) {
  EXPECT_THAT(complaint(file("random"), rows()), HasSubstr("torch.randn_like(x)"));
  EXPECT_THAT(complaint(file("counter"), rows()), HasSubstr("self.seen.add_(1)"));
  EXPECT_THAT(complaint(file("evaluation"), kImages), HasSubstr("evaluation_mode: true"));
  auto options = file("evaluation");
  options.args = testing::yaml("{ evaluation_mode: true }");
  EXPECT_EQ(complaint(options, kImages), "");
}

TEST(Pt2Net, TakesOnlyNumbersOfSamplesForWhichItsBranchesAreRight) {
  const auto made = make(file("branch"), rows(4));
  const auto* net = dynamic_cast<const Pt2Net*>(made.get());
  ASSERT_NE(net, nullptr);
  EXPECT_TRUE(net->check_samples(12).ok());
  EXPECT_THAT(
      net->check_samples(8).error().message(),
      AllOf(HasSubstr("branch.pt2'"), HasSubstr("for 9 or more samples at a time, not for 8")));
  EXPECT_THAT(net->check_samples(14).error().message(), HasSubstr("`(L['x'].size()[0] % 4) == 0`"));
  made->forward(samples(rows(4), 16));
  for (const bool training : {true, false}) {
    made->train(training);
    try {
      made->forward(samples(rows(4), 4));
      FAIL();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("9 or more samples"));
    }
  }
  const auto with_loss = make(file("most", "file"), rows());
  const auto input = samples(rows(), 7);
  EXPECT_THROW(with_loss->forward(input), c10::Error);
  with_loss->forward(input.narrow(0, 0, 6));
  with_loss->forward(input.narrow(0, 0, 1));
}

// torch._check of a size that only the graph knows.
TEST(Pt2Net, RunsAssertionsOfNumbers) {
  const auto net = make(file("assertion"), rows());
  EXPECT_EQ(net->forward(torch::ones({2, 4})).sizes(), (std::vector<int64_t>{2, 3}));
  try {
    net->forward(torch::zeros({2, 4}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("Runtime assertion failed"), HasSubstr("make_testdata.py")));
  }
}

TEST(Pt2Net, FindsABufferThatIsChangedThroughAView) {
  const auto net = make(file("hidden-counter"), rows());
  try {
    net->forward(samples(rows(), 2));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                HasSubstr("changes one of its parameters or buffers"));
  }
}

TEST(Pt2Net, FindsAParameterThatIsChangedThroughAView) {
  const auto net = make(file("max-norm"), tokens());
  try {
    net->forward(samples(tokens(), 2));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("an embedding with max_norm does"));
  }
}

// A file may come from a stranger.
TEST(Pt2Net, RefusesOperatorsThatReachBeyondTheirTensors) {
  const auto complaint = [](const std::string& target) {
    return Edited("plain", "torch.ops.aten.relu.default", target).complaint(kImages);
  };
  EXPECT_THAT(complaint("torch.ops.inductor._reinterpret_tensor.default"),
              HasSubstr("no operator of libtorch's own"));
  for (const char* target :
       {"torch.ops.aten.from_file.default", "torch.ops.aten._nested_view_from_buffer.default",
        "torch.ops.aten.native_batch_norm.default",
        "torch.ops.aten.choose_qparams_optimized.default"}) {
    EXPECT_THAT(complaint(target), HasSubstr("effects cannot be followed")) << target;
  }
  // Whatever this libtorch has of these.
  int backwards = 0;
  int reshape = 0;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!op.name.starts_with("aten::") || op.name == "aten::detach_") continue;
    const std::string name = op.name.substr(6);
    const std::string target = fmt::format("torch.ops.aten.{}.{}", name,
                                           op.overload_name.empty() ? "default" : op.overload_name);
    const auto schema = c10::Dispatcher::singleton().findSchema(op);
    if (name.ends_with("_backward")) {
      ++backwards;
      EXPECT_THAT(complaint(target), HasSubstr("effects cannot be followed")) << target;
    } else if (schema && schema->hasTag(at::Tag::inplace_view)) {
      ++reshape;
      EXPECT_THAT(complaint(target), HasSubstr("use the operator without the underscore"))
          << target;
    }
  }
  EXPECT_GT(backwards, 50);
  EXPECT_GT(reshape, 10);
  EXPECT_THAT(complaint("torch.ops.aten.empty_like.default"), HasSubstr("not initialised"));
  EXPECT_THAT(complaint("torch.ops.aten.relu.out"), HasSubstr("writes to its argument 'out'"));
}

TEST(Pt2Net, RefusesOperatorsThatLibtorchDoesNotHave) {
  const Edited unknown("plain", "torch.ops.aten.relu.default", "torch.ops.aten.mine.default");
  EXPECT_THAT(unknown.complaint(kImages),
              AllOf(HasSubstr("'edited.pt2': torch.ops.aten.mine.default"),
                    HasSubstr("tests/pt2/make_testdata.py, line"), HasSubstr("torch.relu("),
                    HasSubstr("no operator of this libtorch")));
  // In a way that pt2::plan() does not know of.
  const Edited draws("plain", "torch.ops.aten.relu.default",
                     "torch.ops.aten.native_dropout_backward.default");
  EXPECT_NE(draws.complaint(kImages), "");
  const Edited argument("plain", R"("name": "weight", "arg")", R"("name": "wait", "arg")");
  EXPECT_THAT(argument.complaint(kImages), HasSubstr("an argument 'wait'"));
}

TEST(Pt2Net, ErrorsOfOperatorsNameTheLineOfPython) {
  const auto net = make(file("plain"), kImages);
  try {
    net->forward(torch::zeros({2, 3, 6, 6}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("torch.ops.aten.conv2d.default"), HasSubstr("make_testdata.py")));
  }
}

}  // namespace
}  // namespace muster::model
