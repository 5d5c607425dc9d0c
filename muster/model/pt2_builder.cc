// From a file to a net; pt2_net.cc runs it.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/config/node.h"
#include "muster/model/pt2_net.h"
#include "muster/model/pt2_replacements.h"

namespace muster::model {
namespace {

using pt2::kNoSlot;
using pt2::Slot;
using pt2::Treatment;

static_assert(pt2::kMostDropouts <= kMostDropouts);

std::string text_of(const pt2::TensorMeta& meta) {
  std::vector<std::string> sizes;
  for (const auto& size : meta.sizes) sizes.push_back(size ? std::to_string(*size) : "any");
  return fmt::format("{} [{}]", pt2::dtype_name(meta.dtype), fmt::join(sizes, ", "));
}

std::string text_of(data::DType dtype, const std::vector<int64_t>& shape) {
  std::string text = dtype == data::DType::kFloat32 ? "float32 [samples" : "int64 [samples";
  for (const int64_t size : shape) text += fmt::format(", {}", size);
  return text + "]";
}

pt2::DType to_file(data::DType dtype) {
  return dtype == data::DType::kFloat32 ? pt2::DType::kFloat32 : pt2::DType::kInt64;
}

const pt2::TensorMeta* meta_of(const pt2::Program& program, Slot slot) {
  const auto& meta = program.slots[static_cast<size_t>(slot)];
  return meta ? &*meta : nullptr;
}

// Whether what the model takes is what the data has.
Status check_taken(const pt2::Program& program, const pt2::Input& input, const std::string& file,
                   std::string_view what, data::DType dtype, const std::vector<int64_t>& shape) {
  const pt2::TensorMeta* meta = meta_of(program, input.slot);
  if (meta == nullptr) return {};
  if (!meta->sizes.empty() && meta->sizes[0]) {
    return Error(ErrorKind::kJob,
                 "'{}' was exported for exactly {} samples, and lanes have as many as the job "
                 "says: export it with dynamic_shapes=({{0: torch.export.Dim(\"samples\")}},)",
                 file, *meta->sizes[0]);
  }
  bool fits = meta->dtype == to_file(dtype) && meta->sizes.size() == shape.size() + 1;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = !meta->sizes[i + 1] || *meta->sizes[i + 1] == shape[i];
  }
  if (fits) return {};
  return Error(ErrorKind::kJob, "'{}' takes {} as '{}', but the {} of the data are {}", file,
               text_of(*meta), input.name, what, text_of(dtype, shape));
}

bool is_scalar(const pt2::Program& program, Slot slot) {
  const pt2::TensorMeta* meta = meta_of(program, slot);
  return meta != nullptr && meta->sizes.empty();
}

Result<Pt2Interface> interface_with_loss(const pt2::Program& program, Pt2Interface interface,
                                         const std::string& file) {
  for (const Slot slot : program.outputs) {
    Slot& place = is_scalar(program, slot) ? interface.loss : interface.output;
    if (place != kNoSlot) {
      return Error(ErrorKind::kJob,
                   "'{}' takes inputs and targets and returns {} tensors; it must return its loss, "
                   "or (output, loss)",
                   file, program.outputs.size());
    }
    place = slot;
  }
  if (interface.loss == kNoSlot) {
    return Error(ErrorKind::kJob,
                 "'{}' takes inputs and targets but returns no scalar, which would be its loss",
                 file);
  }
  return interface;
}

}  // namespace

Result<Pt2Interface> find_interface(const pt2::Program& program,
                                    const config::ModelOptions& options,
                                    const data::Schema& schema) {
  const std::string& file = options.file;
  std::vector<const pt2::Input*> inputs;
  for (const pt2::Input& input : program.inputs) {
    if (input.kind == pt2::Input::Kind::kUser) inputs.push_back(&input);
  }
  if (inputs.empty() || inputs.size() > 2) {
    return Error(ErrorKind::kJob,
                 "'{}' takes {} tensors; it must take one, the inputs, or two, with the targets",
                 file, inputs.size());
  }
  Pt2Interface interface;
  interface.input = inputs[0]->slot;
  MUSTER_RETURN_IF_ERROR(
      check_taken(program, *inputs[0], file, "inputs", schema.input, schema.input_shape));
  const bool own_loss = options.loss == kLossOfFile;
  if (inputs.size() == 2) {
    if (!own_loss) {
      return Error(ErrorKind::kJob,
                   "'{}' takes inputs and targets, so it computes its loss itself: set "
                   "model.loss to file",
                   file);
    }
    interface.target = inputs[1]->slot;
    MUSTER_RETURN_IF_ERROR(
        check_taken(program, *inputs[1], file, "targets", schema.target, schema.target_shape));
    return interface_with_loss(program, interface, file);
  }
  if (own_loss) {
    return Error(ErrorKind::kJob,
                 "model.loss file is for a model that takes inputs and targets, and '{}' takes "
                 "inputs only: set model.loss to another one, or export the loss with it",
                 file);
  }
  if (program.outputs.size() != 1) {
    return Error(ErrorKind::kJob, "'{}' returns {} tensors; it must return one", file,
                 program.outputs.size());
  }
  interface.output = program.outputs[0];
  return interface;
}

Result<pt2::Plan> plan_file(const pt2::File& file, const config::ModelOptions& options) {
  config::ArgReader args(options.args, "model.args");
  pt2::PlanOptions plan;
  MUSTER_TRY(plan.evaluation_mode, args.get_bool("evaluation_mode", false));
  MUSTER_RETURN_IF_ERROR(args.finish());
  return pt2::plan(file.program(), options.file, plan);
}

class Pt2Builder {
 public:
  Pt2Builder(const pt2::Program& program, const std::string& file,
             std::shared_ptr<const LaneContext> lane)
      : program_(program), file_(file), lane_(std::move(lane)) {}

  Result<std::shared_ptr<Net>> build(const pt2::Plan& plan, const Pt2Interface& interface,
                                     const data::Schema& schema) {
    net_->interface_ = interface;
    net_->file_ = file_;
    net_->assumptions_ = program_.assumptions;
    net_->input_shape_ = schema.input_shape;
    net_->target_shape_ = schema.target_shape;
    net_->target_dtype_ = schema.target == data::DType::kFloat32 ? torch::kFloat32 : torch::kInt64;
    MUSTER_TRY(net_->tensors_, load_tensors(program_, plan, *net_, file_));
    for (const pt2::Input& input : program_.inputs) {
      const auto& value = fixed(input.slot);
      const bool own = input.kind != pt2::Input::Kind::kUser;
      if (own && value.isTensor()) net_->constants_.push_back(value.toTensor());
    }
    const auto needed = find_needed(plan);
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      const pt2::Node& node = program_.nodes[i];
      if (plan.nodes[i] == Treatment::kSkip) continue;
      MUSTER_TRY(auto made, make(node, plan.nodes[i]));
      if (!needed[i]) continue;
      Pt2Net::Step step;
      step.node = std::move(made);
      step.place = fmt::format("{} ({})", node.target, node.place.text());
      if (!node.outputs.empty() && node.outputs[0].kind == pt2::Output::Kind::kTensor) {
        step.result = node.outputs[0].slots[0];
      }
      net_->steps_.push_back(std::move(step));
      nodes_.push_back(&node);
    }
    freeze_unused();
    find_releases();
    find_lookups();
    find_layers();
    return std::shared_ptr<Net>(net_);
  }

 private:
  const c10::IValue& fixed(Slot slot) const {
    return net_->tensors_.fixed[static_cast<size_t>(slot)];
  }

  Result<std::unique_ptr<Pt2Node>> make(const pt2::Node& node, Treatment treatment) {
    const Pt2Graph graph = {net_->tensors_.fixed, file_};
    switch (treatment) {
      case Treatment::kRun:
        return make_operator(node, graph);
      case Treatment::kNumbers:
        return make_numbers(node, graph);
      case Treatment::kDropout:
        return make_dropout(node, graph, new_dropout(node, "p"));
      case Treatment::kFeatureDropout:
        return make_feature_dropout(node, graph, new_dropout(node, "p"));
      case Treatment::kBatchNorm:
        return make_batch_norm(node, graph, statistics_of(node));
      case Treatment::kAttention:
        return make_attention(node, graph, new_dropout(node, "dropout_p"));
      case Treatment::kRecurrent:
        return make_recurrent(node, graph);
      case Treatment::kRecurrentDropout:
        return make_recurrent_dropout(node, graph, dropouts_between(node));
      case Treatment::kSkip:
        break;
    }
    MUSTER_CHECK(false, "what is skipped is not made");
    std::abort();
  }

  // Registered under a name that no module of Python has; build() (registry.h) numbers them.
  std::shared_ptr<Dropout> new_dropout(const pt2::Node& node, std::string_view p) {
    auto dropout = std::make_shared<Dropout>(number_in(node, p), lane_);
    return net_->register_module(fmt::format("#dropout{}", dropouts_++), std::move(dropout));
  }

  std::vector<std::shared_ptr<Dropout>> dropouts_between(const pt2::Node& node) {
    const auto layers = std::get<pt2::IntArg>(*node.find("num_layers")).value;
    std::vector<std::shared_ptr<Dropout>> all;
    for (int64_t i = 1; i < layers; ++i) all.push_back(new_dropout(node, "dropout"));
    return all;
  }

  std::shared_ptr<BatchStatistics> statistics_of(const pt2::Node& node) const {
    const Slot mean = std::get<pt2::TensorArg>(*node.find("running_mean")).slot;
    const auto& all = net_->tensors_.statistics;
    const auto found = std::ranges::find(all, mean, [](const auto& one) { return one.first; });
    MUSTER_CHECK(found != all.end(), "load_tensors() has made them");
    return found->second;
  }

  template <typename Visit>
  static void for_each_slot(const pt2::Node& node, const Visit& visit) {
    const auto seen = [&](Slot slot) {
      if (slot != kNoSlot) visit(slot);
    };
    for (const auto& [name, value] : node.inputs) {
      std::visit(
          [&](const auto& argument) {
            using Kind = std::decay_t<decltype(argument)>;
            if constexpr (std::is_same_v<Kind, pt2::TensorsArg>) {
              std::ranges::for_each(argument.slots, seen);
            } else if constexpr (std::is_same_v<Kind, pt2::IntsArg>) {
              for (const auto& one : argument.values) seen(one.slot);
            } else if constexpr (requires { argument.slot; }) {
              seen(argument.slot);
            }
          },
          value);
    }
    for (const auto& output : node.outputs) std::ranges::for_each(output.slots, seen);
  }

  // Operators without effect but for their results, if nobody wants these: the attention weights of
  // MultiheadAttention, for example.
  std::vector<bool> find_needed(const pt2::Plan& plan) const {
    std::vector<bool> wanted(program_.slots.size());
    const auto want = [&](Slot slot) { wanted[static_cast<size_t>(slot)] = true; };
    for (const Slot slot : {net_->interface_.output, net_->interface_.loss}) {
      if (slot != kNoSlot) want(slot);
    }
    std::vector<bool> needed(plan.nodes.size());
    for (size_t i = plan.nodes.size(); i-- > 0;) {
      const pt2::Node& node = program_.nodes[i];
      bool is_needed = !is_pure(node, plan.nodes[i]);
      for (const auto& output : node.outputs) {
        for (const Slot slot : output.slots) {
          if (wanted[static_cast<size_t>(slot)]) is_needed = true;
        }
      }
      needed[i] = is_needed;
      if (is_needed) for_each_slot(node, want);
    }
    return needed;
  }

  // A parameter that no node reads has no gradient, and PyTorch's optimizers skip such ones; weight
  // decay would change it.
  void freeze_unused() {
    std::vector<at::Tensor> used;
    const auto use = [&](Slot slot) {
      if (fixed(slot).isTensor()) used.push_back(fixed(slot).toTensor());
    };
    for (const pt2::Node* node : nodes_) for_each_slot(*node, use);
    for (const Slot slot : {net_->interface_.output, net_->interface_.loss}) {
      if (slot != kNoSlot) use(slot);
    }
    for (auto& parameter : net_->parameters()) {
      const auto is_it = [&](const at::Tensor& tensor) { return tensor.is_same(parameter); };
      if (std::ranges::none_of(used, is_it)) parameter.set_requires_grad(false);
    }
  }

  static bool is_pure(const pt2::Node& node, Treatment treatment) {
    if (treatment == Treatment::kNumbers) return true;
    const std::string_view target = node.target;
    if (treatment != Treatment::kRun || !target.starts_with("torch.ops.aten.")) return false;
    if (target.starts_with("torch.ops.aten._assert_scalar.")) return false;
    return !target.substr(0, target.rfind('.')).ends_with('_');
  }

  // Each slot after the last node that reads or writes it, unless the model returns it.
  void find_releases() {
    std::map<Slot, size_t> last;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for_each_slot(*nodes_[i], [&](Slot slot) { last[slot] = i; });
    }
    last.erase(net_->interface_.output);
    last.erase(net_->interface_.loss);
    for (const auto& [slot, i] : last) net_->steps_[i].release.push_back(slot);
  }

  void find_lookups() {
    for (const pt2::Node* node : nodes_) {
      if (!node->target.starts_with("torch.ops.aten.embedding")) continue;
      const pt2::Argument* weight = node->find("weight");
      const auto* tensor = weight != nullptr ? std::get_if<pt2::TensorArg>(weight) : nullptr;
      if (tensor == nullptr || !fixed(tensor->slot).isTensor()) continue;
      for (const auto& parameter : net_->named_parameters()) {
        if (parameter.value().is_same(fixed(tensor->slot).toTensor())) {
          net_->lookups_.push_back(parameter.key());
        }
      }
    }
  }

  // The output of a module is that of its last node, or of the last one of a module inside of it.
  void find_layers() {
    std::map<std::string, size_t> last;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (net_->steps_[i].result == kNoSlot) continue;
      std::string name = nodes_[i]->module;
      while (!name.empty()) {
        last[name] = i;
        const size_t dot = name.rfind('.');
        name.resize(dot == std::string::npos ? 0 : dot);
      }
    }
    for (const auto& [name, i] : last) {
      const auto part = std::dynamic_pointer_cast<Pt2Part>(part_at(*net_, split(name, '.')));
      if (part != nullptr) net_->steps_[i].finished.push_back(part.get());
    }
  }

  const pt2::Program& program_;
  const std::string& file_;
  std::shared_ptr<const LaneContext> lane_;
  std::shared_ptr<Pt2Net> net_ = std::make_shared<Pt2Net>();
  std::vector<const pt2::Node*> nodes_;  // of the net's steps
  int dropouts_ = 0;
};

Result<std::shared_ptr<Net>> make_pt2_net(const pt2::File& file,
                                          const config::ModelOptions& options,
                                          const data::Schema& schema,
                                          const std::shared_ptr<LaneContext>& lane) {
  MUSTER_TRY(const auto plan, plan_file(file, options));
  MUSTER_TRY(const auto interface, find_interface(file.program(), options, schema));
  return Pt2Builder(file.program(), options.file, lane).build(plan, interface, schema);
}

}  // namespace muster::model
