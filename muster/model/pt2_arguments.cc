#include "muster/model/pt2_arguments.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <torch/version.h>

#include "muster/base/check.h"

namespace muster::model {
namespace {

using c10::IValue;
using c10::TypeKind;
using pt2::kNoSlot;
using pt2::Slot;

constexpr std::array<std::pair<pt2::DType, at::ScalarType>, 10> kDTypes = {{
    {pt2::DType::kUint8, at::kByte},
    {pt2::DType::kInt8, at::kChar},
    {pt2::DType::kInt16, at::kShort},
    {pt2::DType::kInt32, at::kInt},
    {pt2::DType::kInt64, at::kLong},
    {pt2::DType::kFloat16, at::kHalf},
    {pt2::DType::kFloat32, at::kFloat},
    {pt2::DType::kFloat64, at::kDouble},
    {pt2::DType::kBool, at::kBool},
    {pt2::DType::kBFloat16, at::kBFloat16},
}};

// The file's numbers, from 1 on.
constexpr std::array<at::MemoryFormat, 4> kFormats = {
    at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d,
    at::MemoryFormat::Preserve};
constexpr int64_t kStrided = 7;

bool is_int(TypeKind kind) { return kind == TypeKind::IntType || kind == TypeKind::SymIntType; }
bool is_bool(TypeKind kind) { return kind == TypeKind::BoolType || kind == TypeKind::SymBoolType; }
bool is_float(TypeKind kind) {
  return kind == TypeKind::FloatType || kind == TypeKind::SymFloatType;
}

// A number as an argument of this kind; nothing if it cannot be one.
std::optional<IValue> number_as(const IValue& number, TypeKind kind) {
  if (kind == TypeKind::NumberType) return number;
  if (kind == TypeKind::TensorType) return at::native::wrapped_scalar_tensor(number.toScalar());
  if (is_float(kind) && !number.isBool()) return number.toScalar().toDouble();
  if (is_int(kind) && number.isInt()) return number;
  if (is_bool(kind) && number.isBool()) return number;
  return std::nullopt;
}

}  // namespace

at::ScalarType to_torch(pt2::DType dtype) {
  const auto* found =
      std::ranges::find(kDTypes, dtype, &std::pair<pt2::DType, at::ScalarType>::first);
  MUSTER_CHECK(found != kDTypes.end(), "only these are read");
  return found->second;
}

std::string describe_node(const std::string& file, const pt2::Node& node) {
  return fmt::format("'{}': {} ({})", file, node.target, node.place.text());
}

double number_in(const pt2::Node& node, std::string_view name) {
  const pt2::Argument* argument = node.find(name);
  MUSTER_CHECK(argument != nullptr, "pt2::plan() has seen it");
  if (const auto* value = std::get_if<pt2::FloatArg>(argument)) return value->value;
  return static_cast<double>(std::get<pt2::IntArg>(*argument).value);
}

// One argument: to a constant, or to what a run must compute.
class Pt2Arguments::Converter {
 public:
  Converter(const Pt2Values& fixed, const c10::Argument& wanted, size_t position)
      : fixed_(fixed), wanted_(wanted) {
    computed_.position = position;
  }

  // Nothing: it does not fit.
  std::optional<std::variant<IValue, Computed>> convert(const pt2::Argument& argument) {
    auto type = wanted_.type();
    if (type->kind() == TypeKind::OptionalType) {
      if (std::holds_alternative<pt2::None>(argument)) return IValue();
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    if (type->kind() == TypeKind::ListType) {
      return list(argument, *type->expectRef<c10::ListType>().getElementType());
    }
    return single(argument, type->kind());
  }

 private:
  using Converted = std::optional<std::variant<IValue, Computed>>;

  // A type, layout or format, which operators take as a number and do not check.
  bool is_choice() const {
    auto type = wanted_.real_type();
    if (type->kind() == TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    const auto kind = type->kind();
    return kind == TypeKind::ScalarTypeType || kind == TypeKind::LayoutType ||
           kind == TypeKind::MemoryFormatType;
  }
  bool is_fixed(Slot slot) const { return !at(slot).isNone(); }
  const IValue& at(Slot slot) const { return fixed_[static_cast<size_t>(slot)]; }

  static Converted constant(std::optional<IValue> value) {
    if (!value) return std::nullopt;
    return *std::move(value);
  }

  Converted computed(Slot slot, TypeKind kind) {
    computed_.slot = slot;
    computed_.kind = kind;
    return std::move(computed_);
  }

  Converted single(const pt2::Argument& argument, TypeKind kind) {
    if (const auto* tensor = std::get_if<pt2::TensorArg>(&argument)) {
      if (kind != TypeKind::TensorType) return std::nullopt;
      if (is_fixed(tensor->slot)) return at(tensor->slot);
      return computed(tensor->slot, kind);
    }
    if (const auto* number = std::get_if<pt2::IntArg>(&argument))
      return this->number(*number, kind);
    if (const auto* number = std::get_if<pt2::FloatArg>(&argument))
      return this->number(*number, kind);
    if (const auto* number = std::get_if<pt2::BoolArg>(&argument))
      return this->number(*number, kind);
    if (const auto* text = std::get_if<std::string>(&argument)) {
      if (kind != TypeKind::StringType) return std::nullopt;
      return IValue(*text);
    }
    if (const auto* device = std::get_if<pt2::DeviceArg>(&argument)) {
      if (kind != TypeKind::DeviceObjType || device->type != "cpu") return std::nullopt;
      return IValue(c10::Device(at::kCPU));
    }
    // An operator without an argument for a generator is called with none.
    if (std::holds_alternative<pt2::None>(argument)) return IValue();
    if (!is_int(kind)) return std::nullopt;
    if (const auto* dtype = std::get_if<pt2::DTypeArg>(&argument)) {
      return IValue(static_cast<int64_t>(to_torch(dtype->dtype)));
    }
    if (const auto* format = std::get_if<pt2::MemoryFormatArg>(&argument)) {
      const auto index = static_cast<size_t>(format->format - 1);
      if (index >= kFormats.size()) return std::nullopt;
      return IValue(static_cast<int64_t>(kFormats[index]));
    }
    if (const auto* layout = std::get_if<pt2::LayoutArg>(&argument)) {
      if (layout->layout != kStrided) return std::nullopt;
      return IValue(static_cast<int64_t>(c10::kStrided));
    }
    return std::nullopt;
  }

  template <typename Number>
  Converted number(const Number& number, TypeKind kind) {
    if (is_choice()) return std::nullopt;
    if (number.slot != kNoSlot) return computed(number.slot, kind);
    return constant(number_as(number.value, kind));
  }

  Converted list(const pt2::Argument& argument, const c10::Type& item) {
    const bool optional = item.kind() == TypeKind::OptionalType;
    if (const auto* tensors = std::get_if<pt2::TensorsArg>(&argument)) {
      return tensor_list(tensors->slots, optional, item);
    }
    if (const auto* ints = std::get_if<pt2::IntsArg>(&argument))
      return int_list(ints->values, item);
    // One number for all.
    if (const auto* number = std::get_if<pt2::IntArg>(&argument)) {
      const auto count = static_cast<size_t>(wanted_.N().value_or(1));
      return int_list(std::vector<pt2::IntArg>(count, *number), item);
    }
    if (const auto* floats = std::get_if<pt2::FloatsArg>(&argument)) {
      if (!is_float(item.kind())) return std::nullopt;
      return IValue(floats->values);
    }
    if (const auto* bools = std::get_if<pt2::BoolsArg>(&argument)) {
      if (!is_bool(item.kind())) return std::nullopt;
      c10::List<bool> list;
      for (const bool value : bools->values) list.push_back(value);
      return IValue(std::move(list));
    }
    return std::nullopt;
  }

  Converted tensor_list(const std::vector<Slot>& slots, bool optional, const c10::Type& item) {
    const auto kind =
        optional ? item.expectRef<c10::OptionalType>().getElementType()->kind() : item.kind();
    if (kind != TypeKind::TensorType) return std::nullopt;
    const bool all_given = std::ranges::all_of(slots, [](Slot slot) { return slot != kNoSlot; });
    if (!optional && !all_given) return std::nullopt;
    computed_.tensors = slots;
    computed_.kind = item.kind();
    const bool all_fixed =
        std::ranges::all_of(slots, [&](Slot slot) { return slot == kNoSlot || is_fixed(slot); });
    if (all_fixed) return value_of(computed_, fixed_);
    return std::move(computed_);
  }

  Converted int_list(const std::vector<pt2::IntArg>& items, const c10::Type& item) {
    const bool all_constant =
        std::ranges::all_of(items, [](const pt2::IntArg& one) { return one.slot == kNoSlot; });
    if (is_float(item.kind()) && all_constant) {
      std::vector<double> values;
      for (const auto& one : items) values.push_back(static_cast<double>(one.value));
      return IValue(std::move(values));
    }
    if (!is_int(item.kind())) return std::nullopt;
    for (const auto& one : items) computed_.ints.push_back({one.value, one.slot});
    computed_.kind = item.kind();
    if (all_constant) return value_of(computed_, fixed_);
    return std::move(computed_);
  }

  const Pt2Values& fixed_;
  const c10::Argument& wanted_;
  Computed computed_;
};

IValue Pt2Arguments::value_of(const Computed& computed, const Pt2Values& values) {
  const auto at = [&](Slot slot) -> const IValue& { return values[static_cast<size_t>(slot)]; };
  if (computed.slot != kNoSlot) {
    const IValue& value = at(computed.slot);
    // None: a running statistic, which its node keeps itself.
    if (value.isTensor() || value.isNone()) return value;
    auto number = number_as(value, computed.kind);
    TORCH_CHECK(number, "a computed number is of the wrong kind");
    return *std::move(number);
  }
  if (is_int(computed.kind)) {
    std::vector<int64_t> ints;
    ints.reserve(computed.ints.size());
    for (const auto& [value, slot] : computed.ints) {
      ints.push_back(slot == kNoSlot ? value : at(slot).toInt());
    }
    return ints;
  }
  if (computed.kind == TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (const Slot slot : computed.tensors) {
      list.push_back(slot == kNoSlot ? std::nullopt : std::optional(at(slot).toTensor()));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  for (const Slot slot : computed.tensors) list.push_back(at(slot).toTensor());
  return list;
}

Result<Pt2Arguments> Pt2Arguments::prepare(const pt2::Node& node, const c10::FunctionSchema& schema,
                                           const Pt2Values& fixed, const std::string& file) {
  Pt2Arguments all;
  for (const c10::Argument& wanted : schema.arguments()) all.names_.push_back(wanted.name());
  for (const auto& [name, value] : node.inputs) {
    if (std::ranges::find(all.names_, name) != all.names_.end()) continue;
    return Error(ErrorKind::kJob, "{} has an argument '{}', which this libtorch ({}) does not know",
                 describe_node(file, node), name, TORCH_VERSION);
  }
  for (const c10::Argument& wanted : schema.arguments()) {
    const size_t position = all.constants_.size();
    const pt2::Argument* given = node.find(wanted.name());
    if (given == nullptr) {
      if (!wanted.default_value()) {
        return Error(ErrorKind::kJob, "{} lacks the argument '{}'", describe_node(file, node),
                     wanted.name());
      }
      all.constants_.push_back(*wanted.default_value());
      continue;
    }
    auto converted = Converter(fixed, wanted, position).convert(*given);
    if (!converted) {
      const auto* device = std::get_if<pt2::DeviceArg>(given);
      return Error(ErrorKind::kJob, "{} has an argument '{}' that is no {}{}",
                   describe_node(file, node), wanted.name(), wanted.type()->str(),
                   device != nullptr
                       ? fmt::format(" of the CPU but of {}; export model.cpu()", device->type)
                       : "");
    }
    if (auto* constant = std::get_if<IValue>(&*converted)) {
      all.constants_.push_back(std::move(*constant));
    } else {
      all.constants_.emplace_back();
      all.computed_.push_back(std::get<Computed>(*std::move(converted)));
    }
  }
  return all;
}

void Pt2Arguments::fill(const Pt2Values& values, std::vector<IValue>& stack) const {
  stack = constants_;
  for (const Computed& one : computed_) stack[one.position] = value_of(one, values);
}

size_t Pt2Arguments::position(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  MUSTER_CHECK(found != names_.end(), "the schema has no such argument");
  return static_cast<size_t>(found - names_.begin());
}

}  // namespace muster::model
