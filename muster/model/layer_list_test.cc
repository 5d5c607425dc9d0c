#include "muster/model/layer_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/model/net_testing.h"

namespace muster::model {
namespace {

using testing::complaint;
using ::testing::ElementsAre;
using testing::images;
using testing::layers;
using testing::make;
using testing::parameter_names;
using ::testing::StartsWith;

std::vector<int64_t> output_shape(const config::ModelOptions& options, const data::Schema& schema) {
  return make(options, schema)->forward(testing::samples(schema, 3)).sizes().vec();
}

constexpr const char* kLeNet = R"(
- conv2d: { out: 20, kernel: 5 }
- maxpool2d: { kernel: 2 }
- relu
- conv2d: { out: 50, kernel: 5, name: second }
- maxpool2d: { kernel: 2 }
- relu
- flatten
- linear: { out: 500 }
- relu
- linear: { out: classes }
)";

TEST(LayerList, NumbersItsChildrenAsPythonDoes) {
  const auto net = make(layers(kLeNet), images());
  EXPECT_THAT(parameter_names(*net),
              ElementsAre("0.weight", "0.bias", "second.weight", "second.bias", "7.weight",
                          "7.bias", "9.weight", "9.bias"));
}

// The same weights in both: the list is the zoo's lenet.
TEST(LayerList, ComputesWhatTheZooComputes) {
  const auto list = make(layers(kLeNet), images());
  const auto lenet = make(testing::zoo("lenet"), images());
  torch::NoGradGuard no_grad;
  const auto from = lenet->parameters();
  const auto to = list->parameters();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  const torch::Tensor input = testing::samples(images(), 4);
  EXPECT_TRUE(list->forward(input).equal(lenet->forward(input)));
}

TEST(LayerList, CarriesShapesThroughEveryLayer) {
  EXPECT_EQ(output_shape(layers(R"(
- conv2d: { out: 8, kernel: [3, 5], stride: [2, 1], padding: [1, 0], groups: 1, bias: false }
- batchnorm
- silu
- avgpool2d: { kernel: 3, stride: 2, padding: 1 }
- residual:
    layers:
      - conv2d: { out: 8, kernel: 3, padding: 1 }
      - batchnorm: { momentum: 0.2, eps: 1e-3 }
      - tanh
- residual:
    projection: true
    layers:
      - conv2d: { out: 12, kernel: 3, padding: 1, stride: 2 }
- adaptive_avgpool2d: { out: 2 }
- dropout: { p: 0.2 }
- flatten
- linear: { out: 6 }
- batchnorm
- sigmoid
- layernorm: { eps: 1e-6, bias: false }
- residual: { projection: true, layers: [linear: { out: 5 }, gelu] }
- linear: { out: classes, bias: false }
)"),
                         images()),
            (std::vector<int64_t>{3, 10}));
  EXPECT_EQ(output_shape(layers(R"(
- embedding: { width: 12 }
- positional_embedding
- attention_block: { heads: 3, causal: true, dropout: 0.1 }
- attention_block: { heads: 2, expand: 2, bias: false }
- layernorm
- linear: { out: classes }
)"),
                         testing::text()),
            (std::vector<int64_t>{3, 16, 65}));
  EXPECT_EQ(output_shape(layers("[linear: { out: 4 }, relu, linear: { out: 1 }]", "mse"),
                         testing::values()),
            (std::vector<int64_t>{3, 1}));
}

TEST(LayerList, EveryParameterGetsAGradient) {
  const auto schema = testing::text();
  const auto options = layers(R"(
- embedding: { width: 12, vocabulary: 65 }
- positional_embedding
- attention_block: { heads: 3, causal: true, dropout: 0.1 }
- residual: { projection: true, layers: [linear: { out: 7 }, tanh] }
- linear: { out: classes }
)");
  const auto net = make(options, schema);
  const auto loss = find_loss(Registry::builtin(), options, schema).value();
  loss.compute(net->forward(testing::samples(schema, 4)), testing::targets(schema, 4)).backward();
  for (const auto& parameter : net->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_GT(parameter.value().grad().abs().max().item<float>(), 0) << parameter.key();
  }
}

// Each mistake gives one sentence with its place in the job file.
TEST(LayerList, SaysWhereShapesDoNotFit) {
  EXPECT_EQ(
      complaint(layers("- conv2d: { out: 16, kernel: 24 }\n- linear: { out: classes }"), images()),
      "job.yaml:2:3: linear layer needs a flat input, but gets 16x5x5; put 'flatten' before "
      "it");
  EXPECT_EQ(complaint(layers("- linear: { out: 10 }"), testing::text()),
            "job.yaml:1:3: linear layer needs a flat input, but gets 16 tokens; put 'embedding' "
            "before it");
  EXPECT_EQ(complaint(layers("- flatten\n- conv2d: { out: 3, kernel: 3 }"), images()),
            "job.yaml:2:3: conv2d layer needs an image (channels x height x width), but gets 784");
  EXPECT_EQ(complaint(layers("- maxpool2d: { kernel: 30 }"), images()),
            "job.yaml:1:3: maxpool2d layer's kernel of 30x30 is larger than its input of 1x28x28");
  EXPECT_EQ(complaint(layers("- embedding: { width: 3 }"), images()),
            "job.yaml:1:3: embedding layer needs tokens, but gets 1x28x28");
  EXPECT_EQ(complaint(layers("- flatten\n- attention_block: { heads: 2 }"), images()),
            "job.yaml:2:3: attention_block layer needs a sequence (length x width), but gets 784");
  EXPECT_EQ(complaint(layers("- embedding: { width: 10 }\n- attention_block: { heads: 4 }"),
                      testing::text()),
            "job.yaml:2:3: attention_block layer's width 10 must be a multiple of its 4 heads");
  EXPECT_EQ(complaint(layers("- residual: { layers: [conv2d: { out: 4, kernel: 3 }] }"), images()),
            "job.yaml:1:3: residual layer adds its input of 1x28x28 to the 4x26x26 that its layers "
            "give; make the shapes the same, or add 'projection: true'");
  EXPECT_EQ(complaint(layers("- flatten\n- linear: { out: 12 }"), images()),
            "job.yaml:2:3: the last layer gives 12, but cross_entropy on this data needs 10; end "
            "with 'linear: { out: classes }'");
  EXPECT_EQ(
      complaint(layers("- residual: { projection: true, layers: [flatten] }"), images()),
      "job.yaml:1:3: residual layer cannot project its input of 1x28x28 onto the 784 that its "
      "layers give");
}

TEST(LayerList, SaysWhichOptionsAreWrong) {
  EXPECT_THAT(
      complaint(layers("- flaten"), images()),
      StartsWith("job.yaml:1:3: there is no layer 'flaten' (did you mean 'flatten'?); there "
                 "are adaptive_avgpool2d, "));
  EXPECT_EQ(complaint(layers("- softmax"), images()),
            "job.yaml:1:3: there is no softmax layer: cross_entropy takes plain scores and does it "
            "itself; leave it out");
  EXPECT_EQ(complaint(layers("- flatten\n- linear: { output: 3 }"), testing::values()),
            "job.yaml:2:11: the linear layer needs 'out'");
  EXPECT_EQ(complaint(layers("- flatten\n- linear: { out: 10, bais: true }"), images()),
            "job.yaml:2:22: the linear layer has no option 'bais' (did you mean 'bias'?)");
  EXPECT_EQ(complaint(layers("- conv2d: { out: 0, kernel: 3 }"), images()),
            "job.yaml:1:18: out must be at least 1, not 0");
  EXPECT_EQ(complaint(layers("- conv2d: { out: 4, kernel: [1, 2, 3] }"), images()),
            "job.yaml:1:29: kernel must be one number or a list of two, height and width");
  EXPECT_EQ(complaint(layers("- maxpool2d: { kernel: 2, padding: 2 }"), images()),
            "job.yaml:1:36: padding must be at most half the kernel");
  EXPECT_EQ(complaint(layers("- conv2d: { out: 4, kernel: 1, groups: 3 }"), images()),
            "job.yaml:1:3: conv2d layer's 3 groups must divide its 1 input and 4 output channels");
  EXPECT_EQ(complaint(layers("- dropout: { p: 1.5 }"), images()),
            "job.yaml:1:17: p must be at least 0 and below 1, not 1.5");
  EXPECT_EQ(complaint(layers("- relu: { name: a.b }"), images()),
            "job.yaml:1:17: name 'a.b' of a layer must be a word without dots");
  EXPECT_EQ(complaint(layers("- relu: { name: a }\n- tanh: { name: a }"), images()),
            "job.yaml:2:17: two layers are called 'a'");
  EXPECT_EQ(complaint(layers("- { relu: {}, tanh: {} }"), images()),
            "job.yaml:1:3: a layer is a name, as in '- relu', or a name with options, as in "
            "'- linear: { out: 10 }'");
  EXPECT_EQ(complaint(layers("[]"), images()),
            "job.yaml:1:1: layers must be a list of at least one layer");
  EXPECT_THAT(complaint(layers("- flatten\n- linear: { out: 4000000000000000000 }"), images()),
              StartsWith("the model could not be made: "));
}

}  // namespace
}  // namespace muster::model
