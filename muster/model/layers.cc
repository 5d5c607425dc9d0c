#include "muster/model/layers.h"

#include <array>
#include <string_view>

namespace muster::model {
namespace {

using InitialValues = std::vector<std::pair<std::string, Init>>;

// What linear and convolution layers share: PyTorch's default, or a weight of one's own and bias 0.
InitialValues weight_and_bias(const std::optional<Init>& weight, int64_t inputs, bool has_bias) {
  InitialValues values = {{"weight", weight.value_or(Init::fan_in(inputs))}};
  if (has_bias) values.emplace_back("bias", weight ? Init::constant(0) : Init::fan_in(inputs));
  return values;
}

struct Activation {
  std::string_view name;
  Function::Body body;
};

constexpr std::array kActivations = {
    Activation{"gelu", [](const torch::Tensor& x) { return at::gelu(x); }},
    Activation{"relu", [](const torch::Tensor& x) { return at::relu(x); }},
    Activation{"sigmoid", [](const torch::Tensor& x) { return at::sigmoid(x); }},
    Activation{"silu", [](const torch::Tensor& x) { return at::silu(x); }},
    Activation{"tanh", [](const torch::Tensor& x) { return at::tanh(x); }},
};

}  // namespace

InitialValues Linear::initial_values() const {
  return weight_and_bias(options_.weight_init, options_.in, options_.bias);
}

Conv2d::Conv2d(const Conv2dOptions& options)
    : options_(options),
      weight_(register_parameter("weight", torch::empty({options.out, options.in / options.groups,
                                                         options.kernel[0], options.kernel[1]}))) {
  if (options.bias) bias_ = register_parameter("bias", torch::empty({options.out}));
}

torch::Tensor Conv2d::forward(const torch::Tensor& input) {
  return at::conv2d(input, weight_, bias_, options_.stride, options_.padding, /*dilation=*/{1, 1},
                    options_.groups);
}

InitialValues Conv2d::initial_values() const {
  const int64_t inputs = options_.in / options_.groups * options_.kernel[0] * options_.kernel[1];
  return weight_and_bias(options_.weight_init, inputs, options_.bias);
}

Embedding::Embedding(int64_t rows, int64_t width, Init init)
    : init_(init), weight_(register_parameter("weight", torch::empty({rows, width}))) {}

torch::Tensor Embedding::forward(const torch::Tensor& tokens) {
  return at::embedding(weight_, tokens);
}

InitialValues Embedding::initial_values() const { return {{"weight", init_}}; }

PositionalEmbedding::PositionalEmbedding(int64_t rows, int64_t width, Init init)
    : init_(init), weight_(register_parameter("weight", torch::empty({rows, width}))) {}

torch::Tensor PositionalEmbedding::forward(const torch::Tensor& input) {
  return input + weight_.narrow(0, 0, input.size(-2));
}

InitialValues PositionalEmbedding::initial_values() const { return {{"weight", init_}}; }

LayerNorm::LayerNorm(int64_t width, bool bias, double eps)
    : width_(width), eps_(eps), weight_(register_parameter("weight", torch::empty({width}))) {
  if (bias) bias_ = register_parameter("bias", torch::empty({width}));
}

torch::Tensor LayerNorm::forward(const torch::Tensor& input) {
  return at::layer_norm(input, {width_}, weight_, bias_, eps_);
}

InitialValues LayerNorm::initial_values() const {
  InitialValues values = {{"weight", Init::constant(1)}};
  if (bias_.defined()) values.emplace_back("bias", Init::constant(0));
  return values;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& activation : kActivations) names.emplace_back(activation.name);
  return names;
}

Function::Body find_activation(std::string_view name) {
  for (const auto& activation : kActivations) {
    if (activation.name == name) return activation.body;
  }
  return nullptr;
}

void Sequence::add(std::shared_ptr<Layer> layer, std::string name) {
  if (name.empty()) name = std::to_string(layers_.size());
  layers_.push_back(register_module(std::move(name), std::move(layer)));
}

torch::Tensor Sequence::forward(const torch::Tensor& input) {
  torch::Tensor x = input;
  for (const auto& layer : layers_) x = (*layer)(x);
  return x;
}

}  // namespace muster::model
