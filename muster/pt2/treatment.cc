#include "muster/pt2/treatment.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/ranges.h>

#include "muster/pt2/numbers.h"

namespace muster::pt2 {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

// "batch_norm" for "torch.ops.aten.batch_norm.default"; empty for what is not of aten.
std::string_view base_name(std::string_view target) {
  if (!target.starts_with(kAten)) return {};
  target.remove_prefix(kAten.size());
  return target.substr(0, target.find('.'));
}

// Those that libtorch tags nondeterministic_seeded, without those that stand for one device or one
// implementation, which torch.export does not write.
constexpr std::array<std::string_view, 41> kRandom = {"_fused_dropout",
                                                      "_sample_dirichlet",
                                                      "_scaled_dot_product_attention_math",
                                                      "_scaled_dot_product_flash_attention_for_cpu",
                                                      "_standard_gamma",
                                                      "alpha_dropout",
                                                      "alpha_dropout_",
                                                      "bernoulli",
                                                      "bernoulli_",
                                                      "binomial",
                                                      "cauchy",
                                                      "cauchy_",
                                                      "dropout_",
                                                      "exponential",
                                                      "exponential_",
                                                      "feature_alpha_dropout",
                                                      "feature_alpha_dropout_",
                                                      "feature_dropout_",
                                                      "geometric",
                                                      "geometric_",
                                                      "log_normal",
                                                      "log_normal_",
                                                      "multinomial",
                                                      "native_dropout",
                                                      "normal",
                                                      "normal_",
                                                      "normal_functional",
                                                      "poisson",
                                                      "rand",
                                                      "rand_like",
                                                      "randint",
                                                      "randint_like",
                                                      "randn",
                                                      "randn_like",
                                                      "random",
                                                      "random_",
                                                      "randperm",
                                                      "rrelu_with_noise",
                                                      "rrelu_with_noise_",
                                                      "uniform",
                                                      "uniform_"};

// Internal operators that torch.export writes, or a user calls. Others trust their arguments, such
// as sizes and offsets of memory, and a file may come from a stranger.
constexpr std::array<std::string_view, 11> kInternal = {"_adaptive_avg_pool2d",
                                                        "_adaptive_avg_pool3d",
                                                        "_cdist_forward",
                                                        "_euclidean_dist",
                                                        "_log_softmax",
                                                        "_safe_softmax",
                                                        "_shape_as_tensor",
                                                        "_softmax",
                                                        "_to_copy",
                                                        "_unsafe_view",
                                                        "_weight_norm"};

// Operators of which nothing in the graph tells that they read files, trust their arguments, or
// update statistics.
constexpr std::array<std::string_view, 7> kRefused = {"batch_norm_update_stats",
                                                      "from_file",
                                                      "fused_moving_avg_obs_fake_quant",
                                                      "native_batch_norm",
                                                      "resize",
                                                      "segment_reduce",
                                                      "set_data"};

// Those that change the sizes of a tensor, or where its elements are, behind the back of whoever
// holds it: what libtorch tags inplace_view, but for detach_, and what it has for sparse tensors.
constexpr std::array<std::string_view, 13> kReshapeInPlace = {"as_strided_",
                                                              "resize_",
                                                              "resize_as_",
                                                              "resize_as_sparse_",
                                                              "set_",
                                                              "sparse_resize_",
                                                              "sparse_resize_and_clear_",
                                                              "squeeze_",
                                                              "swapaxes_",
                                                              "swapdims_",
                                                              "t_",
                                                              "transpose_",
                                                              "unsqueeze_"};

// Autograd calls them with what forward has left; with other arguments some of them read and write
// beyond their tensors (max_pool2d_with_indices_backward). So does choose_qparams_optimized, which
// believes the number of elements that it is told.
bool trusts_its_arguments(std::string_view name) {
  return name.find("_backward") != name.npos || name.starts_with("choose_qparams");
}

// Their results are whatever was in memory before.
constexpr std::array<std::string_view, 6> kUninitialised = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_recurrent(std::string_view name) {
  return name == "lstm" || name == "gru" || name == "rnn_tanh" || name == "rnn_relu";
}

// Checks of the exporter. What they would find, the operators find too. But not what a user demands
// of sizes with torch._check, or a branch in Python: _assert_scalar is run.
bool is_assertion(std::string_view name) {
  return name == "_assert_tensor_metadata" || name == "_assert_async" ||
         name == "sym_constrain_range" || name == "sym_constrain_range_for_size";
}

std::optional<double> constant_number(const Argument* argument) {
  if (argument == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<FloatArg>(argument); value && value->slot == kNoSlot) {
    return value->value;
  }
  if (const auto* value = std::get_if<IntArg>(argument); value && value->slot == kNoSlot) {
    return static_cast<double>(value->value);
  }
  return std::nullopt;
}

std::optional<bool> constant_truth(const Argument* argument) {
  if (argument == nullptr) return std::nullopt;
  const auto* value = std::get_if<BoolArg>(argument);
  if (value == nullptr || value->slot != kNoSlot) return std::nullopt;
  return value->value;
}

bool is_given(const Argument* argument) {
  return argument != nullptr && !std::holds_alternative<None>(*argument);
}

Slot tensor_slot(const Argument* argument) {
  const auto* tensor = argument != nullptr ? std::get_if<TensorArg>(argument) : nullptr;
  return tensor != nullptr ? tensor->slot : kNoSlot;
}

class Planner {
 public:
  Planner(const Program& program, const std::string& name) : program_(program), name_(name) {
    inputs_.resize(program.slots.size());
    for (const Input& input : program.inputs) inputs_[static_cast<size_t>(input.slot)] = &input;
    count_uses();
  }

  Result<Plan> plan(const PlanOptions& options) {
    Plan plan;
    for (const Node& node : program_.nodes) {
      MUSTER_TRY(const Treatment treatment, treat(node));
      plan.nodes.push_back(treatment);
      dropouts_ += dropouts_of(node, treatment);
      if (dropouts_ > kMostDropouts) {
        return refuse(
            node, fmt::format("is one dropout too many: at most {} are possible", kMostDropouts));
      }
    }
    if (off_ != nullptr && !has_training_ && !options.evaluation_mode) {
      return refuse(*off_,
                    "was exported in evaluation mode, so it would be trained without its "
                    "dropout and with fixed statistics; export model.train(), or, if that "
                    "is what you want, set model.args.evaluation_mode: true");
    }
    return plan;
  }

 private:
  // `what` follows "the model ... at LINE".
  Error refuse(const Node& node, std::string_view what) const {
    return Error(ErrorKind::kJob, "'{}': {} ({}) {}", name_, node.target, node.place.text(), what);
  }

  void count_uses() {
    uses_.resize(program_.slots.size());
    const auto use = [&](Slot slot) {
      if (slot != kNoSlot) ++uses_[static_cast<size_t>(slot)];
    };
    for (const Node& node : program_.nodes) {
      for (const auto& [name, value] : node.inputs) {
        if (const auto* tensor = std::get_if<TensorArg>(&value)) use(tensor->slot);
        if (const auto* tensors = std::get_if<TensorsArg>(&value)) {
          for (const Slot slot : tensors->slots) use(slot);
        }
      }
    }
    for (const Slot slot : program_.outputs) use(slot);
  }

  const Input* input_at(Slot slot) const {
    return slot == kNoSlot ? nullptr : inputs_[static_cast<size_t>(slot)];
  }

  Result<Treatment> treat(const Node& node) {
    if (number_function(node.target) || node.target.starts_with("torch.ops.aten.sym_size.") ||
        node.target.starts_with("torch.ops.aten.sym_numel.")) {
      return Treatment::kNumbers;
    }
    for (const auto& [name, value] : node.inputs) {
      if (const auto* other = std::get_if<OtherArg>(&value)) {
        return refuse(node, fmt::format("has an argument of kind {}, which Muster cannot run: "
                                        "torch.no_grad(), autocast, checkpointing and control flow "
                                        "inside of forward are not possible",
                                        other->kind));
      }
    }
    for (const Output& output : node.outputs) {
      if (output.kind == Output::Kind::kNumber) {
        return refuse(node,
                      "makes a number of the contents of a tensor, so that the program would "
                      "depend on the data; compute with tensors");
      }
    }
    const std::string_view name = base_name(node.target);
    if (name.empty()) return refuse(node, "is no operator of libtorch's own (aten)");
    if (is_assertion(name)) return Treatment::kSkip;
    if (name == "_assert_scalar") return Treatment::kRun;
    if (name == "dropout" || name == "feature_dropout") return dropout(node, name);
    if (name == "dropout_" || name == "feature_dropout_") {
      MUSTER_RETURN_IF_ERROR(in_place(node));
      return dropout(node, name);
    }
    if (name == "batch_norm") return batch_norm(node);
    if (name == "instance_norm") return instance_norm(node);
    if (name == "scaled_dot_product_attention") return attention(node);
    if (is_recurrent(name)) return recurrent(node);
    if (name == "rrelu" || name == "rrelu_") return rrelu(node);
    if (is_random(fmt::format("aten::{}", name))) {
      return refuse(node,
                    "draws random numbers from PyTorch's generator, so the result would "
                    "depend on what else the process computes; only dropout can be replaced");
    }
    const bool internal = name.starts_with('_') && !name.starts_with("__");
    if (contains(kRefused, name) || trusts_its_arguments(name) ||
        (internal && !contains(kInternal, name))) {
      return refuse(node, "is an internal operator, or one whose effects cannot be followed");
    }
    if (contains(kReshapeInPlace, name)) {
      return refuse(node,
                    "changes a tensor's sizes or memory in place; use the operator without the "
                    "underscore");
    }
    if (contains(kUninitialised, name)) {
      return refuse(node, "makes a tensor that is not initialised; use torch.zeros");
    }
    if (changes_in_place(name)) return in_place(node);
    return Treatment::kRun;
  }

  // "relu_", but not "__and__".
  static bool changes_in_place(std::string_view name) {
    return name.ends_with('_') && !name.ends_with("__");
  }

  Result<Treatment> in_place(const Node& node) const {
    const Slot slot = node.inputs.empty() ? kNoSlot : tensor_slot(&node.inputs[0].value);
    const Input* input = input_at(slot);
    if (input == nullptr) return Treatment::kRun;
    const auto result = node.outputs.empty() || node.outputs[0].slots.empty()
                            ? 0
                            : uses_[static_cast<size_t>(node.outputs[0].slots[0])];
    if (input->name.ends_with("num_batches_tracked") && uses_[static_cast<size_t>(slot)] == 1 &&
        result == 0) {
      return Treatment::kSkip;
    }
    if (input->kind == Input::Kind::kUser) {
      return refuse(node, fmt::format("changes the input '{}' in place; use the operator without "
                                      "the underscore",
                                      input->name));
    }
    return refuse(node, fmt::format("changes '{}' in forward, so workers could differ in it; only "
                                    "the statistics of batch normalization can be updated (with a "
                                    "momentum)",
                                    input->name));
  }

  // Between the layers of a recurrent net, of which it has no more than weights.
  static int64_t dropouts_of(const Node& node, Treatment treatment) {
    switch (treatment) {
      case Treatment::kDropout:
      case Treatment::kFeatureDropout:
      case Treatment::kAttention:
        return 1;
      case Treatment::kRecurrentDropout:
        return std::get<IntArg>(*node.find("num_layers")).value - 1;
      default:
        return 0;
    }
  }

  // Whether the node has an effect that only training has. One that was switched off at the export
  // (a frozen layer) stays so.
  bool note_mode(const Node& node, std::optional<bool> training) {
    if (training && !*training) {
      if (off_ == nullptr) off_ = &node;
      return false;
    }
    has_training_ = true;
    return true;
  }

  Result<Treatment> dropout(const Node& node, std::string_view name) {
    const auto p = constant_number(node.find("p"));
    if (!p || !(*p >= 0 && *p < 1)) {
      return refuse(node, "has a probability that is not a number of at least 0 and below 1");
    }
    const auto train = constant_truth(node.find("train"));
    if (!train) return refuse(node, "is switched on and off by something that is computed");
    if (*p == 0) return Treatment::kRun;
    if (!note_mode(node, train)) return Treatment::kRun;
    return name.starts_with("dropout") ? Treatment::kDropout : Treatment::kFeatureDropout;
  }

  Result<Treatment> batch_norm(const Node& node) {
    const auto training = constant_truth(node.find("training"));
    if (!training) return refuse(node, "is switched on and off by something that is computed");
    if (!is_given(node.find("running_mean"))) return Treatment::kRun;  // always the lane's own
    if (!note_mode(node, training)) return Treatment::kRun;
    for (const char* key : {"running_mean", "running_var"}) {
      const Input* input = input_at(tensor_slot(node.find(key)));
      if (input == nullptr || input->kind != Input::Kind::kBuffer ||
          input->weight.dtype != DType::kFloat32) {
        return refuse(node, fmt::format("has a {} that is no float32 buffer of the model", key));
      }
      // A statistic that something else reads is different for each lane.
      const auto slot = static_cast<size_t>(input->slot);
      if (uses_[slot] != batch_norm_uses(input->slot)) {
        return refuse(node, fmt::format("has the running statistic '{}', which something else "
                                        "uses too",
                                        input->name));
      }
    }
    const auto momentum = constant_number(node.find("momentum"));
    if (!momentum || !(*momentum >= 0 && *momentum <= 1)) {
      return refuse(node, "has no momentum between 0 and 1; give the layer one");
    }
    if (!constant_number(node.find("eps"))) return refuse(node, "has an eps that is computed");
    return Treatment::kBatchNorm;
  }

  int batch_norm_uses(Slot slot) const {
    int count = 0;
    for (const Node& node : program_.nodes) {
      if (base_name(node.target) != "batch_norm") continue;
      for (const char* key : {"running_mean", "running_var"}) {
        if (tensor_slot(node.find(key)) == slot) ++count;
      }
    }
    return count;
  }

  Result<Treatment> instance_norm(const Node& node) const {
    if (!is_given(node.find("running_mean"))) return Treatment::kRun;
    if (constant_truth(node.find("use_input_stats")) == false) return Treatment::kRun;
    return refuse(node, "updates running statistics by itself; set track_running_stats=False");
  }

  Result<Treatment> attention(const Node& node) const {
    const Argument* argument = node.find("dropout_p");
    const auto p = argument != nullptr ? constant_number(argument) : 0.0;
    if (!p || !(*p >= 0 && *p < 1)) {
      return refuse(node, "has a dropout_p that is not a number of at least 0 and below 1");
    }
    return *p == 0 ? Treatment::kRun : Treatment::kAttention;
  }

  Result<Treatment> recurrent(const Node& node) {
    const auto p = constant_number(node.find("dropout"));
    const auto train = constant_truth(node.find("train"));
    const Argument* layers = node.find("num_layers");
    const auto* count = layers != nullptr ? std::get_if<IntArg>(layers) : nullptr;
    if (!p || !(*p >= 0 && *p < 1) || !train || count == nullptr || count->slot != kNoSlot) {
      return refuse(node, "has a dropout, train or num_layers that is computed or out of range");
    }
    const Argument* params = node.find("params");
    const auto* weights = params != nullptr ? std::get_if<TensorsArg>(params) : nullptr;
    if (weights == nullptr || count->value > std::ssize(weights->slots)) {
      return refuse(node, "has more layers than weights");
    }
    if (*p == 0 || count->value < 2) return *train ? Treatment::kRecurrent : Treatment::kRun;
    if (!node.target.ends_with(".input")) {
      return refuse(node, "has dropout on packed sequences, which has no replacement");
    }
    return note_mode(node, train) ? Treatment::kRecurrentDropout : Treatment::kRun;
  }

  Result<Treatment> rrelu(const Node& node) const {
    if (constant_truth(node.find("training")) == false || node.find("training") == nullptr) {
      return Treatment::kRun;
    }
    return refuse(node, "draws random numbers in training; use LeakyReLU");
  }

  const Program& program_;
  const std::string& name_;
  std::vector<const Input*> inputs_;  // of each slot; null: of a node
  std::vector<int> uses_;             // of each slot, as an argument or as an output
  const Node* off_ = nullptr;         // the first that was switched off
  bool has_training_ = false;
  int64_t dropouts_ = 0;
};

struct Kind {
  Treatment treatment;
  std::string_view one;
  std::string_view many;
  std::string_view becomes;
};

constexpr std::string_view kMask = "masks are a function of seed, step, lane and layer";
constexpr std::array<Kind, 6> kKinds = {{
    {Treatment::kDropout, "dropout", "dropouts", kMask},
    {Treatment::kFeatureDropout, "dropout of channels", "dropouts of channels", kMask},
    {Treatment::kAttention, "attention with dropout", "attentions with dropout", kMask},
    {Treatment::kRecurrentDropout, "recurrent net with dropout", "recurrent nets with dropout",
     kMask},
    {Treatment::kBatchNorm, "batch normalization", "batch normalizations",
     "running statistics are reduced over the lanes"},
    {Treatment::kRecurrent, "recurrent net", "recurrent nets", "its mode follows Muster's"},
}};

constexpr size_t kShown = 6;

}  // namespace

bool is_random(std::string_view name) {
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return false;
  name.remove_prefix(kNamespace.size());
  return std::ranges::find(kRandom, name) != kRandom.end();
}

Result<Plan> plan(const Program& program, const std::string& name, const PlanOptions& options) {
  return Planner(program, name).plan(options);
}

std::vector<std::string> describe(const Program& program, const Plan& plan) {
  std::vector<std::string> lines;
  for (const Kind& kind : kKinds) {
    std::vector<std::string> names;
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (plan.nodes[i] != kind.treatment) continue;
      names.push_back(!node.module.empty() ? node.module : node.place.text());
    }
    if (names.empty()) continue;
    const size_t count = names.size();
    if (count > kShown) {
      names.resize(kShown);
      names.emplace_back("...");
    }
    lines.push_back(fmt::format("{} {} ({}): {}", count, count == 1 ? kind.one : kind.many,
                                fmt::join(names, ", "), kind.becomes));
  }
  return lines;
}

}  // namespace muster::pt2
