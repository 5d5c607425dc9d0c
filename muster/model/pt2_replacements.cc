#include "muster/model/pt2_replacements.h"

#include <cmath>
#include <limits>
#include <utility>

#include <torch/types.h>

namespace muster::model {
namespace {

using c10::IValue;

// Those of one result.
void store_one(Pt2Operator& op, at::Tensor result, Pt2Values& values) {
  std::vector<IValue> results;
  results.emplace_back(std::move(result));
  op.store(std::move(results), values);
}

// Also dropout_ and feature_dropout_, whose input others may read afterwards.
class DropoutNode : public Pt2Node {
 public:
  DropoutNode(Pt2Operator op, std::shared_ptr<Dropout> dropout)
      : op_(std::move(op)),
        dropout_(std::move(dropout)),
        in_place_(op_.handle().operator_name().name.ends_with('_')) {}
  void run(Pt2Values& values, bool training) override {
    const at::Tensor input = op_.arguments(values)[0].toTensor();
    if (!training) {
      store_one(op_, input, values);
    } else if (in_place_) {
      store_one(op_, input.copy_(dropped(input)), values);
    } else {
      store_one(op_, dropped(input), values);
    }
  }

 protected:
  virtual at::Tensor dropped(const at::Tensor& input) const { return dropout_->forward(input); }
  Dropout& dropout() const { return *dropout_; }

 private:
  Pt2Operator op_;
  std::shared_ptr<Dropout> dropout_;
  bool in_place_;
};

class FeatureDropoutNode final : public DropoutNode {
 public:
  using DropoutNode::DropoutNode;

 protected:
  at::Tensor dropped(const at::Tensor& input) const override {
    TORCH_CHECK(input.dim() >= 2, "dropout of channels needs samples and channels");
    std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
    sizes[0] = input.size(0);
    sizes[1] = input.size(1);
    return input * dropout().forward(at::ones(sizes, input.options()));
  }
};

at::Tensor tensor_or_none(const IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

class BatchNormNode final : public Pt2Node {
 public:
  BatchNormNode(Pt2Operator op, std::shared_ptr<BatchStatistics> statistics)
      : op_(std::move(op)),
        statistics_(std::move(statistics)),
        input_(op_.position("input")),
        weight_(op_.position("weight")),
        bias_(op_.position("bias")) {}
  void run(Pt2Values& values, bool training) override {
    const auto& arguments = op_.arguments(values);
    auto result =
        statistics_->normalise(arguments[input_].toTensor(), tensor_or_none(arguments[weight_]),
                               tensor_or_none(arguments[bias_]), training);
    store_one(op_, std::move(result), values);
  }

 private:
  Pt2Operator op_;
  std::shared_ptr<BatchStatistics> statistics_;
  size_t input_;
  size_t weight_;
  size_t bias_;
};

class AttentionNode final : public Pt2Node {
 public:
  AttentionNode(Pt2Operator op, std::shared_ptr<Dropout> dropout)
      : op_(std::move(op)), dropout_(std::move(dropout)) {}
  void run(Pt2Values& values, bool training) override {
    auto& arguments = op_.arguments(values);
    const auto at = [&](std::string_view name) -> IValue& { return arguments[op_.position(name)]; };
    if (!training) {
      at("dropout_p") = 0.0;
      op_.call(values);
      return;
    }
    const AttentionCall call = {.mask = tensor_or_none(at("attn_mask")),
                                .causal = at("is_causal").toBool(),
                                .scale = at("scale").toOptional<double>(),
                                .share_heads = at("enable_gqa").toBool()};
    store_one(op_,
              attend(at("query").toTensor(), at("key").toTensor(), at("value").toTensor(), call,
                     *dropout_),
              values);
  }

 private:
  Pt2Operator op_;
  std::shared_ptr<Dropout> dropout_;
};

// lstm, gru and rnn, whose arguments have the same names; lstm has a state of two tensors.
class RecurrentDropoutNode final : public Pt2Node {
 public:
  RecurrentDropoutNode(Pt2Operator op, std::vector<std::shared_ptr<Dropout>> dropouts)
      : op_(std::move(op)),
        dropouts_(std::move(dropouts)),
        input_(op_.position("input")),
        state_(op_.position("hx")),
        weights_(op_.position("params")),
        layers_(op_.position("num_layers")),
        dropout_(op_.position("dropout")),
        train_(op_.position("train")),
        bidirectional_(op_.position("bidirectional")) {}

  void run(Pt2Values& values, bool training) override {
    auto& arguments = op_.arguments(values);
    arguments[train_] = training;
    if (!training) {
      op_.call(values);
      return;
    }
    const auto layers = static_cast<int64_t>(dropouts_.size()) + 1;
    const std::vector<at::Tensor> weights = arguments[weights_].toTensorVector();
    const std::vector<at::Tensor> states = tensors_of(arguments[state_]);
    const int64_t directions = arguments[bidirectional_].toBool() ? 2 : 1;
    const auto per_layer = weights.size() / static_cast<size_t>(layers);
    TORCH_CHECK(weights.size() == per_layer * static_cast<size_t>(layers),
                "the layers of a recurrent net differ in their weights");
    at::Tensor signal = arguments[input_].toTensor();
    std::vector<std::vector<at::Tensor>> finals(states.size());  // of each state, by layer
    for (int64_t layer = 0; layer < layers; ++layer) {
      std::vector<IValue> stack = arguments;
      stack[input_] = signal;
      stack[weights_] = part_of(weights, static_cast<size_t>(layer) * per_layer, per_layer);
      std::vector<at::Tensor> own;
      for (const auto& state : states) {
        own.push_back(state.narrow(0, layer * directions, directions));
      }
      if (arguments[state_].isTensor()) {
        stack[state_] = own[0];
      } else {
        stack[state_] = own;
      }
      stack[layers_] = int64_t{1};
      stack[dropout_] = 0.0;
      op_.handle().callBoxed(stack);
      signal = stack[0].toTensor();
      for (size_t i = 0; i < finals.size(); ++i) finals[i].push_back(stack[i + 1].toTensor());
      if (layer + 1 < layers) signal = dropouts_[static_cast<size_t>(layer)]->forward(signal);
    }
    std::vector<IValue> results = {signal};
    for (const auto& final : finals) results.emplace_back(at::cat(final, 0));
    op_.store(std::move(results), values);
  }

 private:
  static std::vector<at::Tensor> tensors_of(const IValue& value) {
    if (value.isTensor()) return {value.toTensor()};
    return value.toTensorVector();
  }
  static std::vector<at::Tensor> part_of(const std::vector<at::Tensor>& all, size_t first,
                                         size_t count) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  Pt2Operator op_;
  std::vector<std::shared_ptr<Dropout>> dropouts_;
  size_t input_;
  size_t state_;
  size_t weights_;
  size_t layers_;
  size_t dropout_;
  size_t train_;
  size_t bidirectional_;
};

template <typename NodeType, typename Part>
Result<std::unique_ptr<Pt2Node>> make_with(const pt2::Node& node, const Pt2Graph& graph,
                                           Part part) {
  MUSTER_TRY(auto op, Pt2Operator::prepare(node, graph));
  return std::unique_ptr<Pt2Node>(std::make_unique<NodeType>(std::move(op), std::move(part)));
}

}  // namespace

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionCall& call, Dropout& dropout) {
  constexpr int64_t kHeads = -3;
  at::Tensor keys = key;
  at::Tensor contents = value;
  if (call.share_heads) {
    TORCH_CHECK(key.size(kHeads) > 0 && value.size(kHeads) > 0, "there are no heads");
    keys = key.repeat_interleave(query.size(kHeads) / key.size(kHeads), kHeads);
    contents = value.repeat_interleave(query.size(kHeads) / value.size(kHeads), kHeads);
  }
  const double scale = call.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  at::Tensor scores = at::matmul(query * scale, keys.transpose(-2, -1));
  if (call.causal) {
    const at::Tensor later =
        at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu_(1);
    scores = scores.masked_fill(later, kNever);
  }
  if (call.mask.defined()) {
    scores = call.mask.scalar_type() == at::kBool
                 ? scores.masked_fill(call.mask.logical_not(), kNever)
                 : scores + call.mask;
    // All places of a row may be masked.
    return at::matmul(dropout.forward(at::_safe_softmax(scores, -1)), contents);
  }
  return at::matmul(dropout.forward(at::softmax(scores, -1)), contents);
}

Result<std::unique_ptr<Pt2Node>> make_dropout(const pt2::Node& node, const Pt2Graph& graph,
                                              std::shared_ptr<Dropout> dropout) {
  return make_with<DropoutNode>(node, graph, std::move(dropout));
}

Result<std::unique_ptr<Pt2Node>> make_feature_dropout(const pt2::Node& node, const Pt2Graph& graph,
                                                      std::shared_ptr<Dropout> dropout) {
  return make_with<FeatureDropoutNode>(node, graph, std::move(dropout));
}

Result<std::unique_ptr<Pt2Node>> make_batch_norm(const pt2::Node& node, const Pt2Graph& graph,
                                                 std::shared_ptr<BatchStatistics> statistics) {
  return make_with<BatchNormNode>(node, graph, std::move(statistics));
}

Result<std::unique_ptr<Pt2Node>> make_attention(const pt2::Node& node, const Pt2Graph& graph,
                                                std::shared_ptr<Dropout> dropout) {
  return make_with<AttentionNode>(node, graph, std::move(dropout));
}

Result<std::unique_ptr<Pt2Node>> make_recurrent_dropout(
    const pt2::Node& node, const Pt2Graph& graph, std::vector<std::shared_ptr<Dropout>> dropouts) {
  return make_with<RecurrentDropoutNode>(node, graph, std::move(dropouts));
}

}  // namespace muster::model
