// The plain layers that nets are made of.
//
// They compute exactly what torch::nn's do, under the same parameter names, and differ in two
// things: their constructors leave parameters unset (init.h says how they start), and there is one
// base class, Layer, so that a list of them can be run without templates.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/model/gradient_sink.h"
#include "muster/model/init.h"
#include "muster/model/net.h"
#include "muster/model/shape.h"

namespace muster::model {

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  // Default: PyTorch's, for weight and bias. If set, the bias starts at 0.
  std::optional<Init> weight_init = std::nullopt;
};

// Works on the last dimension. In linear.cc, for the sake of its gradient.
class Linear : public Layer, public HasInit, public StreamsGradient {
 public:
  explicit Linear(const LinearOptions& options);
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;
  void stream_to(GradientSink* sink) override;
  const torch::Tensor& weight() const override { return weight_; }

 private:
  friend class StreamedLinear;
  LinearOptions options_;
  torch::Tensor weight_;
  torch::Tensor bias_;  // undefined without bias
  GradientSink* sink_ = nullptr;
};

struct Conv2dOptions {
  int64_t in = 0;
  int64_t out = 0;
  Pair kernel = {1, 1};
  Pair stride = {1, 1};
  Pair padding = {0, 0};
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weight_init = std::nullopt;  // as Linear's
};

class Conv2d : public Layer, public HasInit {
 public:
  explicit Conv2d(const Conv2dOptions& options);
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;

 private:
  Conv2dOptions options_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

// Tokens [samples, length] to vectors [samples, length, width].
class Embedding : public Layer, public HasInit {
 public:
  Embedding(int64_t rows, int64_t width, Init init = Init::normal(1));
  torch::Tensor forward(const torch::Tensor& tokens) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;
  const torch::Tensor& weight() const { return weight_; }

 private:
  Init init_;
  torch::Tensor weight_;
};

// Adds a learnt vector to each place of [samples, length, width]; length may be below `rows`.
class PositionalEmbedding : public Layer, public HasInit {
 public:
  PositionalEmbedding(int64_t rows, int64_t width, Init init = Init::normal(0.02));
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;

 private:
  Init init_;
  torch::Tensor weight_;
};

// Over the last dimension.
class LayerNorm : public Layer, public HasInit {
 public:
  explicit LayerNorm(int64_t width, bool bias = true, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;

 private:
  int64_t width_;
  double eps_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

// A layer without parameters: any function of one tensor.
class Function : public Layer {
 public:
  using Body = torch::Tensor (*)(const torch::Tensor&);
  explicit Function(Body body) : body_(body) {}
  torch::Tensor forward(const torch::Tensor& input) override { return body_(input); }

 private:
  Body body_;
};

// "gelu", "relu", "sigmoid", "silu", "tanh".
std::vector<std::string> activation_names();
// nullptr for any other name.
Function::Body find_activation(std::string_view name);

// One layer after the other; children are named "0", "1", ... unless given a name.
class Sequence : public Net {
 public:
  void add(std::shared_ptr<Layer> layer, std::string name = "");
  torch::Tensor forward(const torch::Tensor& input) override;

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace muster::model
