#include "muster/pt2/read_program.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"

namespace muster::pt2::internal {
namespace {

using Json = nlohmann::json;

// The major version changes when an older reader would misunderstand the file.
constexpr int64_t kSchemaMajor = 8;
// Of a graph of 100,000 nodes with their stack traces.
constexpr size_t kLargestJson = size_t{256} << 20;
constexpr size_t kMostDimensions = 64;

// Thrown in this file only: what is wrong with the file, as the middle of a sentence.
class Problem : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Problem(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) throw Problem("something that has '{}' is no object", key);
  const auto at = object.find(key);
  if (at == object.end()) throw Problem("'{}' is missing", key);
  return *at;
}

const Json& list(const Json& object, const char* key) {
  const Json& found = member(object, key);
  if (!found.is_array()) throw Problem("'{}' is no list", key);
  return found;
}

std::string text(const Json& value, std::string_view what) {
  if (!value.is_string()) throw Problem("{} is no text", what);
  return value.get<std::string>();
}

int64_t integer(const Json& value, std::string_view what) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw Problem("{} is too large", what);
  }
  if (!value.is_number_integer()) throw Problem("{} is no whole number", what);
  return value.get<int64_t>();
}

bool truth(const Json& value, std::string_view what) {
  if (!value.is_boolean()) throw Problem("{} is neither true nor false", what);
  return value.get<bool>();
}

double real(const Json& value, std::string_view what) {
  if (value.is_number()) return value.get<double>();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  throw Problem("{} is no number", what);
}

// {"as_int": 3}: the one member of a union.
struct Tagged {
  std::string tag;
  const Json* value;
};
Tagged tagged(const Json& object) {
  if (!object.is_object() || object.size() != 1) throw Problem("an argument has not one kind");
  return {object.begin().key(), &object.begin().value()};
}

DType dtype(const Json& value) {
  const int64_t number = integer(value, "a dtype");
  for (const DType known :
       {DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16,
        DType::kFloat32, DType::kFloat64, DType::kBool, DType::kBFloat16}) {
    if (static_cast<int64_t>(known) == number) return known;
  }
  throw Problem("dtype {} is not supported (complex numbers, 8 bit floats or unknown)", number);
}

// {"as_int": 3}, or {"as_expr": ..}: nothing.
std::optional<int64_t> size(const Json& value) {
  const Tagged kind = tagged(value);
  if (kind.tag == "as_expr") return std::nullopt;
  if (kind.tag != "as_int") throw Problem("a size is '{}'", kind.tag);
  return integer(*kind.value, "a size");
}

std::vector<std::optional<int64_t>> sizes(const Json& meta, const char* key) {
  const Json& values = list(meta, key);
  if (values.size() > kMostDimensions) throw Problem("a tensor has {} dimensions", values.size());
  std::vector<std::optional<int64_t>> all;
  for (const Json& value : values) {
    all.push_back(size(value));
    if (all.back() && *all.back() < 0) throw Problem("'{}' has {}", key, *all.back());
  }
  return all;
}

std::vector<int64_t> known_sizes(const Json& meta, const char* key) {
  std::vector<int64_t> all;
  for (const auto& one : sizes(meta, key)) {
    if (!one) throw Problem("a weight has a size that is not known");
    all.push_back(*one);
  }
  return all;
}

// ---- Weights.

class Weights {
 public:
  Weights(std::span<const ZipEntry> entries, const std::string& top)
      : entries_(entries), top_(top) {
    for (size_t i = 0; i < entries.size(); ++i) by_name_.emplace(entries[i].name, i);
    weights_ = config("data/weights/model_weights_config.json");
    constants_ = config("data/constants/model_constants_config.json");
  }

  Weight weight(const std::string& name) const { return find(weights_, "data/weights/", name); }
  Weight constant(const std::string& name) const {
    return find(constants_, "data/constants/", name);
  }
  // Of a buffer that is not persistent.
  Weight either(const std::string& name) const {
    return weights_.contains(name) ? weight(name) : constant(name);
  }

 private:
  Json config(const std::string& path) const;

  Weight find(const Json& config, const char* folder, const std::string& name) const try {
    const Json& payload = member(config, name.c_str());
    if (truth(member(payload, "use_pickle"), "use_pickle")) throw Problem("it is pickled");
    const std::string path = top_ + folder + text(member(payload, "path_name"), "path_name");
    const auto found = by_name_.find(path);
    if (found == by_name_.end()) throw Problem("there is no entry '{}'", path);
    const Json& meta = member(payload, "tensor_meta");
    Weight weight;
    weight.dtype = dtype(member(meta, "dtype"));
    weight.sizes = known_sizes(meta, "sizes");
    weight.strides = known_sizes(meta, "strides");
    const auto trained = meta.find("requires_grad");
    if (trained != meta.end()) weight.requires_grad = truth(*trained, "requires_grad");
    if (integer(member(meta, "layout"), "layout") != 7) throw Problem("it is not dense");
    if (weight.strides.size() != weight.sizes.size()) {
      throw Problem("it has {} sizes and {} strides", weight.sizes.size(), weight.strides.size());
    }
    const auto offset = size(member(meta, "storage_offset"));
    if (!offset || *offset < 0) throw Problem("its storage_offset is not known");
    weight.entry = found->second;
    weight.data = part(weight, *offset, entries_[found->second].data);
    return weight;
  } catch (const Problem& problem) {
    throw Problem("tensor '{}': {}", name, problem.what());
  }

  // The bytes from the first to the last element.
  static std::span<const std::byte> part(const Weight& weight, int64_t offset,
                                         std::span<const std::byte> bytes) {
    // The product without zeros: strides are made of such, also those of an empty tensor.
    int64_t count = 1;
    bool fits = true;
    bool is_empty = false;
    for (const int64_t size : weight.sizes) {
      if (size == 0) is_empty = true;
      if (__builtin_mul_overflow(count, std::max<int64_t>(1, size), &count)) fits = false;
    }
    if (fits && is_empty) return {};
    int64_t last = 0;
    for (size_t i = 0; i < weight.sizes.size(); ++i) {
      int64_t reach = 0;
      if (__builtin_mul_overflow(weight.sizes[i] - 1, weight.strides[i], &reach) ||
          __builtin_add_overflow(last, reach, &last)) {
        fits = false;
      }
    }
    const auto element = static_cast<int64_t>(dtype_size(weight.dtype));
    int64_t begin = 0;
    int64_t end = 0;
    if (!fits || __builtin_mul_overflow(offset, element, &begin) ||
        __builtin_add_overflow(last, int64_t{1}, &last) ||
        __builtin_mul_overflow(last, element, &end) || __builtin_add_overflow(begin, end, &end) ||
        static_cast<uint64_t>(end) > bytes.size() ||
        // Nothing may be larger in memory than it is here (a stride of 0).
        static_cast<uint64_t>(count) > bytes.size() / static_cast<uint64_t>(element)) {
      throw Problem("it does not lie within the {} bytes of its entry", bytes.size());
    }
    return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }

  std::span<const ZipEntry> entries_;
  std::string top_;
  std::map<std::string, size_t> by_name_;
  Json weights_;
  Json constants_;
};

Json parse_json(const ZipEntry& entry) {
  if (entry.data.size() > kLargestJson) throw Problem("'{}' is too large", entry.name);
  const std::string_view bytes(reinterpret_cast<const char*>(entry.data.data()), entry.data.size());
  Json json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Problem("'{}' is not valid JSON", entry.name);
  return json;
}

Json Weights::config(const std::string& path) const {
  const auto found = by_name_.find(top_ + path);
  if (found == by_name_.end()) return Json::object();
  Json json = parse_json(entries_[found->second]);
  const auto config = json.find("config");
  if (config == json.end() || !config->is_object()) throw Problem("'{}' has no config", path);
  // Not copied: a copy of what is nested deeply would overflow the stack.
  return std::move(*config);
}

// ---- The graph.

class Reader {
 public:
  Reader(const Json& model, const Weights& weights) : model_(model), weights_(weights) {}

  Program read() {
    program_.torch_version = model_.value("torch_version", std::string());
    const Json& module = member(model_, "graph_module");
    const Json& graph = member(module, "graph");
    metas_ = &member(graph, "tensor_values");
    const Json& signature = member(module, "signature");
    for (const Json& spec : list(signature, "input_specs")) read_input(spec);
    read_assumptions();
    for (const Json& node : list(graph, "nodes")) read_node(node);
    for (const Json& spec : list(signature, "output_specs")) read_output(spec);
    return std::move(program_);
  }

 private:
  enum class SlotKind { kTensor, kNumber };

  Slot define(const std::string& name, SlotKind kind) {
    const auto slot = static_cast<Slot>(kinds_.size());
    if (!names_.emplace(name, slot).second) throw Problem("'{}' is defined twice", name);
    kinds_.push_back(kind);
    program_.slots.push_back(kind == SlotKind::kTensor ? meta_of(name) : std::nullopt);
    return slot;
  }

  std::optional<TensorMeta> meta_of(const std::string& name) const {
    if (!metas_->is_object()) return std::nullopt;
    const auto found = metas_->find(name);
    if (found == metas_->end()) return std::nullopt;
    return TensorMeta{dtype(member(*found, "dtype")), sizes(*found, "sizes")};
  }

  Slot use(const std::string& name, SlotKind kind) const {
    const auto found = names_.find(name);
    if (found == names_.end()) throw Problem("'{}' is used before it is defined", name);
    if (kinds_[static_cast<size_t>(found->second)] != kind) {
      throw Problem("'{}' is used as a {}", name, kind == SlotKind::kTensor ? "tensor" : "number");
    }
    return found->second;
  }

  Slot use_tensor(const Json& argument) const {
    return use(text(member(argument, "name"), "a tensor's name"), SlotKind::kTensor);
  }

  // {"as_name": "s"}, or {"as_int": 3} and the like.
  template <typename Number, typename Convert>
  Number number(const Json& value, const char* constant, const Convert& convert) const {
    const Tagged kind = tagged(value);
    if (kind.tag == "as_name") {
      return Number{{}, use(text(*kind.value, "a number's name"), SlotKind::kNumber)};
    }
    if (kind.tag != constant) throw Problem("a number is '{}'", kind.tag);
    return Number{convert(*kind.value, "a number"), kNoSlot};
  }

  IntArg sym_int(const Json& value) const { return number<IntArg>(value, "as_int", integer); }

  template <typename Item>
  static auto each(const Json& values, const Item& item) {
    if (!values.is_array()) throw Problem("an argument is no list");
    std::vector<decltype(item(values))> all;
    for (const Json& value : values) all.push_back(item(value));
    return all;
  }

  Slot optional_tensor(const Json& value) const {
    const Tagged kind = tagged(value);
    return kind.tag == "as_tensor" ? use_tensor(*kind.value) : kNoSlot;
  }

  Argument argument(const Json& json) const {
    const auto [tag, at] = tagged(json);
    const Json& value = *at;
    if (tag == "as_none") return None{};
    if (tag == "as_tensor") return TensorArg{use_tensor(value)};
    if (tag == "as_tensors") {
      return TensorsArg{each(value, [&](const Json& one) { return use_tensor(one); })};
    }
    if (tag == "as_optional_tensor") {
      const Slot slot = optional_tensor(value);
      return slot == kNoSlot ? Argument(None{}) : Argument(TensorArg{slot});
    }
    if (tag == "as_optional_tensors") {
      return TensorsArg{each(value, [&](const Json& one) { return optional_tensor(one); })};
    }
    if (tag == "as_int") return IntArg{integer(value, "an argument"), kNoSlot};
    if (tag == "as_sym_int") return sym_int(value);
    if (tag == "as_ints") {
      return IntsArg{each(
          value, [](const Json& one) { return IntArg{integer(one, "an argument"), kNoSlot}; })};
    }
    if (tag == "as_sym_ints") {
      return IntsArg{each(value, [&](const Json& one) { return sym_int(one); })};
    }
    if (tag == "as_float") return FloatArg{real(value, "an argument"), kNoSlot};
    if (tag == "as_sym_float") return number<FloatArg>(value, "as_float", real);
    if (tag == "as_floats") {
      return FloatsArg{each(value, [](const Json& one) { return real(one, "an argument"); })};
    }
    if (tag == "as_bool") return BoolArg{truth(value, "an argument"), kNoSlot};
    if (tag == "as_sym_bool") return number<BoolArg>(value, "as_bool", truth);
    if (tag == "as_bools") {
      return BoolsArg{each(value, [](const Json& one) { return truth(one, "an argument"); })};
    }
    if (tag == "as_string") return text(value, "an argument");
    if (tag == "as_strings") {
      return each(value, [](const Json& one) { return text(one, "an argument"); });
    }
    if (tag == "as_scalar_type") return DTypeArg{dtype(value)};
    if (tag == "as_memory_format") return MemoryFormatArg{integer(value, "a memory format")};
    if (tag == "as_layout") return LayoutArg{integer(value, "a layout")};
    if (tag == "as_device") return DeviceArg{text(member(value, "type"), "a device")};
    return OtherArg{tag};
  }

  void read_input(const Json& spec) {
    const auto [tag, at] = tagged(spec);
    const Json& value = *at;
    if (tag == "constant_input") return;  // a number that the graph contains already
    Input input;
    std::string name;
    if (tag == "user_input") {
      const Tagged kind = tagged(member(value, "arg"));
      if (kind.tag == "as_none") return;
      if (kind.tag != "as_tensor") {
        throw Problem("an input of the model is '{}'; all must be tensors", kind.tag);
      }
      name = input.name = text(member(*kind.value, "name"), "an input's name");
    } else if (tag == "parameter" || tag == "buffer" || tag == "tensor_constant") {
      name = text(member(member(value, "arg"), "name"), "an input's name");
      input.name = path(text(member(value, (tag + "_name").c_str()), "a tensor's name"));
      input.kind = tag == "parameter" ? Input::Kind::kParameter
                   : tag == "buffer"  ? Input::Kind::kBuffer
                                      : Input::Kind::kConstant;
      input.weight = tag == "parameter" ? weights_.weight(input.name)
                     : tag == "buffer"  ? weights_.either(input.name)
                                        : weights_.constant(input.name);
    } else {
      throw Problem("an input is a '{}', which Muster does not support", tag);
    }
    input.slot = define(name, SlotKind::kTensor);
    program_.inputs.push_back(std::move(input));
  }

  void read_assumptions() {
    auto& all = program_.assumptions;
    for (const Input& input : program_.inputs) {
      if (input.kind != Input::Kind::kUser) continue;
      const size_t number = all.inputs.size();
      all.inputs.push_back(input.name);
      if (!metas_->is_object() || !metas_->contains(input.name)) continue;
      const Json& sizes = list(metas_->at(input.name), "sizes");
      for (size_t i = 0; i < sizes.size(); ++i) {
        const Tagged kind = tagged(sizes[i]);
        if (kind.tag != "as_expr") continue;
        const std::string expression = text(member(*kind.value, "expr_str"), "a size");
        if (auto size = parse_size(expression)) {
          const auto range = range_of(size->symbol);
          all.sizes.push_back({number, i, *std::move(size), range});
        } else {
          all.guards.push_back(
              {fmt::format("size {} of '{}' is {}", i, input.name, expression), std::nullopt});
        }
      }
    }
    const auto guards = model_.find("guards_code");
    if (guards == model_.end()) return;  // of an older PyTorch
    for (const Json& guard : list(model_, "guards_code")) {
      auto code = text(guard, "a guard");
      auto condition = SizeExpression::parse(code, all.inputs);
      all.guards.push_back({std::move(code), std::move(condition)});
    }
  }

  SymbolRange range_of(const std::string& symbol) const {
    SymbolRange range;
    const auto all = model_.find("range_constraints");
    if (all == model_.end() || !all->is_object() || !all->contains(symbol)) return range;
    const Json& found = all->at(symbol);
    const auto bound = [&](const char* key, int64_t none) {
      const Json& value = member(found, key);
      return value.is_null() ? none : std::min(integer(value, key), SymbolRange::kMost);
    };
    range.highest = bound("max_val", SymbolRange::kMost);
    range.lowest = bound("min_val", 0);
    // The exporter takes any size that is not fixed for 2 or more, and writes 2 for Dim.AUTO and
    // 0 for Dim("samples"), of which it has assumed the same. PyTorch itself runs what it exported
    // with 0 and 1 unless the minimum is above 2 (_check_input_constraints_for_graph).
    if (range.lowest <= 2) range.lowest = 0;
    return range;
  }

  void read_output(const Json& spec) {
    const auto [tag, value] = tagged(spec);
    if (tag != "user_output") {
      throw Problem(
          "it was decomposed or has gradients of its own ('{}'); save what "
          "torch.export.export returns, without run_decompositions()",
          tag);
    }
    const Tagged kind = tagged(member(*value, "arg"));
    if (kind.tag != "as_tensor") {
      throw Problem("the model returns '{}'; it must return tensors", kind.tag);
    }
    program_.outputs.push_back(use_tensor(*kind.value));
  }

  Output output(const Json& json) {
    const auto [tag, at] = tagged(json);
    const Json& value = *at;
    const auto tensor = [&](const Json& one) {
      return define(text(member(one, "name"), "a result's name"), SlotKind::kTensor);
    };
    if (tag == "as_tensor") return {Output::Kind::kTensor, {tensor(value)}};
    if (tag == "as_tensors") return {Output::Kind::kTensors, each(value, tensor)};
    if (tag == "as_none") return {Output::Kind::kNone, {}};
    if (tag == "as_optional_tensor") {
      const Tagged kind = tagged(value);
      if (kind.tag == "as_none") return {Output::Kind::kNone, {}};
      return {Output::Kind::kTensor, {tensor(*kind.value)}};
    }
    if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") {
      return {Output::Kind::kNumber,
              {define(text(member(value, "as_name"), "a number's name"), SlotKind::kNumber)}};
    }
    throw Problem("a node returns '{}', which Muster does not support", tag);
  }

  void read_node(const Json& json) {
    Node node;
    node.target = text(member(json, "target"), "a node's target");
    const auto metadata = json.find("metadata");
    if (metadata != json.end() && metadata->is_object()) {
      const auto of = [&](const char* key) {
        const auto found = metadata->find(key);
        return found != metadata->end() && found->is_string() ? found->get<std::string>() : "";
      };
      node.place = innermost_place(of("stack_trace"));
      node.module = innermost_module(of("nn_module_stack"));
    }
    try {
      for (const Json& input : list(json, "inputs")) {
        node.inputs.push_back(
            {text(member(input, "name"), "an argument's name"), argument(member(input, "arg"))});
      }
      for (const Json& one : list(json, "outputs")) node.outputs.push_back(output(one));
    } catch (const Problem& problem) {
      throw Problem("node {} ({}): {}", node.target, node.place.text(), problem.what());
    }
    program_.nodes.push_back(std::move(node));
  }

  // "L__self__,,Net;L__self___fc1,fc1,torch.nn.modules.linear.Linear": fc1.
  static std::string innermost_module(const std::string& stack) {
    const auto last = stack.rfind(';');
    const auto fields = split(last == std::string::npos ? stack : stack.substr(last + 1), ',');
    return fields.size() < 2 ? "" : path(fields[1]);
  }

  // The name of a module or tensor inside of modules, each of which becomes one of ours.
  static std::string path(std::string name) {
    constexpr size_t kMostBytes = 1024;
    constexpr int64_t kMostDots = 64;
    if (name.size() > kMostBytes || std::ranges::count(name, '.') > kMostDots) {
      throw Problem("the name '{}...' is too long, or its modules are too deep",
                    name.substr(0, 40));
    }
    return name;
  }

  const Json& model_;
  const Weights& weights_;
  const Json* metas_ = nullptr;
  Program program_;
  std::map<std::string, Slot> names_;
  std::vector<SlotKind> kinds_;
};

Program read(std::span<const ZipEntry> entries) {
  constexpr std::string_view kModel = "models/model.json";
  const ZipEntry* model_entry = nullptr;
  for (const ZipEntry& entry : entries) {
    const auto& path = entry.name;
    if (path == kModel || path.ends_with("/" + std::string(kModel))) {
      if (model_entry != nullptr) throw Problem("it has two models");
      model_entry = &entry;
    }
  }
  if (model_entry == nullptr) {
    throw Problem(
        "it has no models/model.json; PyTorch before 2.8 wrote another format, export it "
        "with a newer one, and without the argument that renames the model");
  }
  const Json model = parse_json(*model_entry);
  const Json& version = member(model, "schema_version");
  const int64_t major = integer(member(version, "major"), "the schema's version");
  if (major != kSchemaMajor) {
    throw Problem(
        "it has version {} of the schema of torch.export, and Muster reads version {} "
        "(PyTorch 2.8 to 2.15 write it)",
        major, kSchemaMajor);
  }
  const std::string& path = model_entry->name;
  const Weights weights(entries, path.substr(0, path.size() - kModel.size()));
  return Reader(model, weights).read();
}

bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos ||
         file.find("/torch/") != std::string_view::npos;
}

// `  File "net.py", line 12, in forward`
std::optional<Place> place_in(std::string_view line) {
  line = trim(line);
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  if (!line.starts_with(kFile)) return std::nullopt;
  const auto end = line.rfind(kLine);
  if (end == std::string_view::npos || end < kFile.size()) return std::nullopt;
  Place place;
  place.file = line.substr(kFile.size(), end - kFile.size());
  const auto number = line.substr(end + kLine.size());
  std::from_chars(number.data(), number.data() + number.size(), place.line);
  return place;
}

}  // namespace

Place innermost_place(std::string_view trace) {
  std::vector<Place> places;
  bool code = false;  // the next line is that of the last place
  for (const std::string& line : split(trace, '\n')) {
    if (auto place = place_in(line)) {
      places.push_back(*std::move(place));
      code = true;
    } else if (code) {
      places.back().code = trim(line);
      code = false;
    }
  }
  if (places.empty()) return {};
  const auto users = std::find_if(places.rbegin(), places.rend(),
                                  [](const Place& place) { return !is_installed(place.file); });
  return users != places.rend() ? *users : places.back();
}

Result<Program> read_program(std::span<const ZipEntry> entries, const std::string& name) {
  try {
    return read(entries);
  } catch (const Problem& problem) {
    return Error(ErrorKind::kJob, "'{}' is not a model that Muster can read: {}", name,
                 problem.what());
  } catch (const Json::exception&) {
    return Error(ErrorKind::kJob,
                 "'{}' is not a model that Muster can read: its JSON has not the form that "
                 "torch.export gives it",
                 name);
  }
}

}  // namespace muster::pt2::internal
