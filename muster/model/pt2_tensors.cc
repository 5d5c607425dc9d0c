#include "muster/model/pt2_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"

namespace muster::model {
namespace {

using pt2::Input;
using pt2::Slot;

bool overlap(const pt2::Weight& a, const pt2::Weight& b) {
  return a.entry == b.entry && a.data.data() < b.data.data() + b.data.size() &&
         b.data.data() < a.data.data() + a.data.size();
}

const Input* find_input(const pt2::Program& program, const pt2::Argument* argument) {
  const auto* tensor = argument != nullptr ? std::get_if<pt2::TensorArg>(argument) : nullptr;
  if (tensor == nullptr) return nullptr;
  const auto found = std::ranges::find(program.inputs, tensor->slot, &Input::slot);
  return found == program.inputs.end() ? nullptr : &*found;
}

class Loader {
 public:
  Loader(const pt2::Program& program, torch::nn::Module& root, const std::string& file)
      : program_(program), root_(root), file_(file) {
    tensors_.fixed.resize(program.slots.size());
  }

  Result<Pt2Tensors> load(const pt2::Plan& plan) {
    for (const Input& input : program_.inputs) {
      if (input.kind == Input::Kind::kParameter) MUSTER_RETURN_IF_ERROR(parameter(input));
    }
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      if (plan.nodes[i] != pt2::Treatment::kBatchNorm) continue;
      MUSTER_RETURN_IF_ERROR(statistics(program_.nodes[i]));
    }
    for (const Input& input : program_.inputs) {
      if (input.kind != Input::Kind::kBuffer && input.kind != Input::Kind::kConstant) continue;
      MUSTER_RETURN_IF_ERROR(check_apart(input));
      if (!is_statistic(input.slot)) fixed(input.slot) = tensor_of(input.weight);
    }
    return std::move(tensors_);
  }

 private:
  c10::IValue& fixed(Slot slot) { return tensors_.fixed[static_cast<size_t>(slot)]; }

  Status parameter(const Input& input) {
    for (const Input* other : parameters_) {
      if (other->weight.is_same(input.weight)) {
        fixed(input.slot) = fixed(other->slot);
        return {};
      }
      if (overlap(other->weight, input.weight)) {
        return Error(ErrorKind::kJob,
                     "'{}': parameters '{}' and '{}' share a part of their memory, so each would "
                     "change the other; give each its own with clone()",
                     file_, other->name, input.name);
      }
    }
    parameters_.push_back(&input);
    const auto path = split(input.name, '.');
    const auto part = part_at(root_, std::span(path).first(path.size() - 1));
    fixed(input.slot) =
        part->register_parameter(path.back(), tensor_of(input.weight), input.weight.requires_grad);
    return {};
  }

  // A buffer or constant is a copy, so it would not follow a parameter that is trained.
  Status check_apart(const Input& input) const {
    for (const Input* parameter : parameters_) {
      if (!parameter->weight.requires_grad || !overlap(parameter->weight, input.weight)) continue;
      return Error(ErrorKind::kJob,
                   "'{}': the {} '{}' shares its memory with the parameter '{}', so it would have "
                   "to change when that is trained; use the parameter itself in forward, or give "
                   "it its own with clone()",
                   file_, input.kind == Input::Kind::kBuffer ? "buffer" : "constant", input.name,
                   parameter->name);
    }
    return {};
  }

  bool is_statistic(Slot slot) const { return std::ranges::find(running_, slot) != running_.end(); }

  Status statistics(const pt2::Node& node) {
    const Input* mean = find_input(program_, node.find("running_mean"));
    const Input* variance = find_input(program_, node.find("running_var"));
    MUSTER_CHECK(mean != nullptr && variance != nullptr, "pt2::plan() has seen them");
    if (is_statistic(mean->slot) && is_statistic(variance->slot)) return {};  // a layer used twice
    if (is_statistic(mean->slot) || is_statistic(variance->slot)) {
      return Error(ErrorKind::kJob,
                   "{} shares one of its running statistics with another batch normalization",
                   describe_node(file_, node));
    }
    running_.push_back(mean->slot);
    running_.push_back(variance->slot);
    auto both =
        std::make_shared<BatchStatistics>(tensor_of(mean->weight), tensor_of(variance->weight),
                                          number_in(node, "eps"), number_in(node, "momentum"));
    for (Statistic& statistic : both->list(mean->name, variance->name)) {
      tensors_.statistics_list.push_back(std::move(statistic));
    }
    tensors_.statistics.emplace_back(mean->slot, std::move(both));
    return {};
  }

  const pt2::Program& program_;
  torch::nn::Module& root_;
  const std::string& file_;
  Pt2Tensors tensors_;
  std::vector<const Input*> parameters_;  // registered ones
  std::vector<Slot> running_;
};

}  // namespace

torch::Tensor Pt2Part::forward(const torch::Tensor& /*input*/) {
  TORCH_CHECK(false, "a module of an exported model is not run on its own");
}

std::shared_ptr<torch::nn::Module> part_at(torch::nn::Module& root,
                                           std::span<const std::string> path) {
  std::shared_ptr<torch::nn::Module> at = root.shared_from_this();
  for (const std::string& name : path) {
    const auto children = at->named_children();
    const auto* known = children.find(name);
    at = known != nullptr ? *known : at->register_module(name, std::make_shared<Pt2Part>());
  }
  return at;
}

at::Tensor tensor_of(const pt2::Weight& weight) {
  const auto dtype = to_torch(weight.dtype);
  if (weight.is_contiguous()) {
    const at::Tensor whole = at::empty(weight.sizes, dtype);
    if (!weight.data.empty()) {
      std::memcpy(whole.mutable_data_ptr(), weight.data.data(), weight.data.size());
    }
    return whole;
  }
  const auto count = weight.data.size() / pt2::dtype_size(weight.dtype);
  const at::Tensor flat = at::empty({static_cast<int64_t>(count)}, dtype);
  std::memcpy(flat.mutable_data_ptr(), weight.data.data(), weight.data.size());
  return flat.as_strided(weight.sizes, weight.strides).clone(at::MemoryFormat::Contiguous);
}

Result<Pt2Tensors> load_tensors(const pt2::Program& program, const pt2::Plan& plan,
                                torch::nn::Module& root, const std::string& file) {
  return Loader(program, root, file).load(plan);
}

}  // namespace muster::model
