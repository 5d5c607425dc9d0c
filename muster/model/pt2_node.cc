#include "muster/model/pt2_node.h"

#include <algorithm>
#include <array>
#include <utility>

#include <torch/version.h>

#include "muster/pt2/numbers.h"

namespace muster::model {
namespace {

using c10::IValue;

// Of these, arguments say whether they draw; pt2::plan() has looked at them.
constexpr std::array<std::string_view, 11> kLookedAt = {"aten::dropout",
                                                        "aten::dropout_",
                                                        "aten::feature_dropout_",
                                                        "aten::feature_dropout",
                                                        "aten::scaled_dot_product_attention",
                                                        "aten::lstm",
                                                        "aten::gru",
                                                        "aten::rnn_tanh",
                                                        "aten::rnn_relu",
                                                        "aten::rrelu",
                                                        "aten::rrelu_"};

// "torch.ops.aten.add.Tensor" is aten::add of the overload Tensor.
c10::OperatorName name_of(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (target.starts_with(kOps)) target.remove_prefix(kOps.size());
  const size_t space = target.find('.');
  const size_t last = target.rfind('.');
  if (space == std::string_view::npos || last == space) return {std::string(target), ""};
  const auto overload = target.substr(last + 1);
  return {
      fmt::format("{}::{}", target.substr(0, space), target.substr(space + 1, last - space - 1)),
      overload == "default" ? "" : std::string(overload)};
}

Error no_operator(const pt2::Node& node, const Pt2Graph& graph) {
  return Error(ErrorKind::kJob,
               "{} is no operator of this libtorch ({}); write it with PyTorch's own operators, or "
               "export it with a PyTorch of this version",
               describe_node(graph.file, node), TORCH_VERSION);
}

// An operator may write to its first argument if it says so by its name: pt2::plan() looks at what
// that is.
Status check_written(const pt2::Node& node, const c10::FunctionSchema& schema,
                     const Pt2Graph& graph) {
  const std::string& name = schema.name();
  const bool in_place = name.ends_with('_') && !name.ends_with("__");
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const bool first = i == 0 && !node.inputs.empty() && node.inputs[0].name == argument.name() &&
                       std::holds_alternative<pt2::TensorArg>(node.inputs[0].value);
    if (in_place && first) continue;
    return Error(ErrorKind::kJob,
                 "{} writes to its argument '{}'; use an operator that returns its result",
                 describe_node(graph.file, node), argument.name());
  }
  return {};
}

template <typename Kind, typename... Parts>
std::unique_ptr<Pt2Node> made(Parts&&... parts) {
  return std::make_unique<Kind>(std::forward<Parts>(parts)...);
}

class OperatorNode final : public Pt2Node {
 public:
  explicit OperatorNode(Pt2Operator op) : op_(std::move(op)) {}
  void run(Pt2Values& values, bool /*training*/) override {
    op_.arguments(values);
    op_.call(values);
  }

 private:
  Pt2Operator op_;
};

class RecurrentNode final : public Pt2Node {
 public:
  explicit RecurrentNode(Pt2Operator op) : op_(std::move(op)), train_(op_.position("train")) {}
  void run(Pt2Values& values, bool training) override {
    op_.arguments(values)[train_] = training;
    op_.call(values);
  }

 private:
  Pt2Operator op_;
  size_t train_;
};

pt2::Number to_number(const IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  return value.toDouble();
}

IValue to_value(const pt2::Number& number) {
  return std::visit([](auto value) { return IValue(value); }, number);
}

// x.shape[i], or the number of elements.
class SizeNode final : public Pt2Node {
 public:
  static constexpr int64_t kAllElements = -1;
  SizeNode(pt2::Slot tensor, int64_t dimension, pt2::Slot result)
      : tensor_(tensor), dimension_(dimension), result_(result) {}
  void run(Pt2Values& values, bool /*training*/) override {
    const at::Tensor& tensor = values[static_cast<size_t>(tensor_)].toTensor();
    values[static_cast<size_t>(result_)] =
        dimension_ == kAllElements ? tensor.numel() : tensor.size(dimension_);
  }

 private:
  pt2::Slot tensor_;
  int64_t dimension_;
  pt2::Slot result_;
};

class NumberNode final : public Pt2Node {
 public:
  struct Item {
    pt2::Number value;
    pt2::Slot slot = pt2::kNoSlot;
  };
  NumberNode(pt2::NumberFunction function, std::vector<Item> items, pt2::Slot result)
      : function_(function), items_(std::move(items)), numbers_(items_.size()), result_(result) {}
  void run(Pt2Values& values, bool /*training*/) override {
    for (size_t i = 0; i < items_.size(); ++i) {
      const auto& [value, slot] = items_[i];
      numbers_[i] = slot == pt2::kNoSlot ? value : to_number(values[static_cast<size_t>(slot)]);
    }
    const auto number = function_(numbers_);
    TORCH_CHECK(number.ok(), number.error().message());
    values[static_cast<size_t>(result_)] = to_value(*number);
  }

 private:
  pt2::NumberFunction function_;
  std::vector<Item> items_;
  std::vector<pt2::Number> numbers_;
  pt2::Slot result_;
};

Error bad_arithmetic(const pt2::Node& node, const Pt2Graph& graph) {
  return Error(ErrorKind::kJob, "{} has arguments that are no numbers",
               describe_node(graph.file, node));
}

Result<std::unique_ptr<Pt2Node>> make_size(const pt2::Node& node, const Pt2Graph& graph,
                                           pt2::Slot result) {
  const pt2::Argument* self = node.find("self");
  const auto* tensor = self != nullptr ? std::get_if<pt2::TensorArg>(self) : nullptr;
  if (tensor == nullptr) return bad_arithmetic(node, graph);
  int64_t dimension = SizeNode::kAllElements;
  if (const pt2::Argument* argument = node.find("dim")) {
    const auto* dim = std::get_if<pt2::IntArg>(argument);
    if (dim == nullptr || dim->slot != pt2::kNoSlot || dim->value < 0) {
      return bad_arithmetic(node, graph);
    }
    dimension = dim->value;
  }
  return made<SizeNode>(tensor->slot, dimension, result);
}

}  // namespace

Pt2Node::~Pt2Node() = default;

Result<Pt2Operator> Pt2Operator::prepare(const pt2::Node& node, const Pt2Graph& graph) {
  const auto found = c10::Dispatcher::singleton().findSchema(name_of(node.target));
  if (!found) return no_operator(node, graph);
  const c10::FunctionSchema& schema = found->schema();
  MUSTER_RETURN_IF_ERROR(check_written(node, schema, graph));
  MUSTER_TRY(auto arguments, Pt2Arguments::prepare(node, schema, graph.fixed, graph.file));
  const auto& returns = schema.returns();
  bool fits = node.outputs.size() == returns.size();
  for (size_t i = 0; fits && i < returns.size(); ++i) {
    const auto type = returns[i].type()->kind();
    const auto kind = node.outputs[i].kind;
    fits = kind == pt2::Output::Kind::kNone ||
           (type == c10::TypeKind::ListType && kind == pt2::Output::Kind::kTensors) ||
           (type == c10::TypeKind::TensorType && kind == pt2::Output::Kind::kTensor);
  }
  if (!fits) {
    return Error(ErrorKind::kJob, "{} has other results than in this libtorch ({})",
                 describe_node(graph.file, node), TORCH_VERSION);
  }
  return Pt2Operator(*found, std::move(arguments), node.outputs);
}

std::vector<IValue>& Pt2Operator::arguments(const Pt2Values& values) {
  arguments_.fill(values, stack_);
  return stack_;
}

void Pt2Operator::call(Pt2Values& values) {
  handle_.callBoxed(stack_);
  store(std::move(stack_), values);
}

void Pt2Operator::store(std::vector<IValue>&& results, Pt2Values& values) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const auto& [kind, slots] = outputs_[i];
    if (kind == pt2::Output::Kind::kTensor) {
      values[static_cast<size_t>(slots[0])] = std::move(results[i]);
    } else if (kind == pt2::Output::Kind::kTensors) {
      const auto list = results[i].toTensorVector();
      TORCH_CHECK(list.size() == slots.size(), "it gave ", list.size(), " tensors and not ",
                  slots.size(), " as when it was exported");
      for (size_t j = 0; j < slots.size(); ++j) values[static_cast<size_t>(slots[j])] = list[j];
    }
  }
  stack_.clear();  // else its tensors, and their graph, stay until it runs again
}

Result<std::unique_ptr<Pt2Node>> make_operator(const pt2::Node& node, const Pt2Graph& graph) {
  MUSTER_TRY(auto op, Pt2Operator::prepare(node, graph));
  const auto& name = op.handle().operator_name().name;
  if (op.handle().hasTag(at::Tag::nondeterministic_seeded) &&
      std::ranges::find(kLookedAt, name) == kLookedAt.end()) {
    return Error(ErrorKind::kJob,
                 "{} draws random numbers from PyTorch's generator, so the result would depend on "
                 "what else the process computes; only dropout can be replaced",
                 describe_node(graph.file, node));
  }
  return made<OperatorNode>(std::move(op));
}

Result<std::unique_ptr<Pt2Node>> make_recurrent(const pt2::Node& node, const Pt2Graph& graph) {
  MUSTER_TRY(auto op, Pt2Operator::prepare(node, graph));
  return made<RecurrentNode>(std::move(op));
}

Result<std::unique_ptr<Pt2Node>> make_numbers(const pt2::Node& node, const Pt2Graph& graph) {
  if (node.outputs.size() != 1 || node.outputs[0].kind != pt2::Output::Kind::kNumber) {
    return bad_arithmetic(node, graph);
  }
  const pt2::Slot result = node.outputs[0].slots[0];
  const auto function = pt2::number_function(node.target);
  if (!function) return make_size(node, graph, result);
  std::vector<NumberNode::Item> items;
  for (const auto& [name, argument] : node.inputs) {
    if (const auto* number = std::get_if<pt2::IntArg>(&argument)) {
      items.push_back({number->value, number->slot});
    } else if (const auto* number = std::get_if<pt2::FloatArg>(&argument)) {
      items.push_back({number->value, number->slot});
    } else if (const auto* number = std::get_if<pt2::BoolArg>(&argument)) {
      items.push_back({number->value, number->slot});
    } else {
      return bad_arithmetic(node, graph);
    }
  }
  return made<NumberNode>(*function, std::move(items), result);
}

}  // namespace muster::model
