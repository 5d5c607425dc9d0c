// What torch.export.save wrote: the graph of a model, node by node, and its weights.
//
//   <name>/models/model.json                     the graph and its signature (PyTorch's
//                                                torch/_export/serde/schema.py)
//   <name>/data/weights/model_weights_config.json   which entry holds which parameter or buffer
//   <name>/data/constants/model_constants_config.json   the same for constants of the graph
//   <name>/data/weights/weight_0, ...             raw bytes
//
// Reading checks everything that running it would rely on: the schema's version, that each value is
// defined once and before it is used, and as what (tensor or number), that each tensor lies within
// its entry. So the interpreter (muster/model/pt2_net.h) need not look again. What it means, which
// operators exist and which nodes Muster replaces, is not this file's: see treatment.h.
//
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/mapped_file.h"
#include "muster/base/result.h"
#include "muster/pt2/assumptions.h"
#include "muster/pt2/zip.h"

namespace muster::pt2 {

// With the numbers of the file, which are not libtorch's.
enum class DType : int64_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 12,
  kBFloat16 = 13,
};
size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);

// A place where values of the graph are kept while it runs. Each is written by one input or node.
using Slot = int;
constexpr Slot kNoSlot = -1;

struct TensorMeta {
  DType dtype = DType::kFloat32;
  // Nothing: known only when the graph runs, such as the number of samples.
  std::vector<std::optional<int64_t>> sizes;
};

// An argument of a node. A number is a constant, unless it has a slot.
struct None {
  bool operator==(const None&) const = default;
};
struct TensorArg {
  Slot slot = kNoSlot;
};
struct TensorsArg {
  std::vector<Slot> slots;  // kNoSlot: none there
};
struct IntArg {
  int64_t value = 0;
  Slot slot = kNoSlot;
};
struct IntsArg {
  std::vector<IntArg> values;
};
struct FloatArg {
  double value = 0;
  Slot slot = kNoSlot;
};
struct FloatsArg {
  std::vector<double> values;
};
struct BoolArg {
  bool value = false;
  Slot slot = kNoSlot;
};
struct BoolsArg {
  std::vector<bool> values;
};
struct DTypeArg {
  DType dtype = DType::kFloat32;
};
struct MemoryFormatArg {
  int64_t format = 0;  // 1 contiguous, 2 channels last, 3 the same in 3D, 4 preserve
};
struct LayoutArg {
  int64_t layout = 0;  // 7 strided
};
struct DeviceArg {
  std::string type;
};
// A kind that no node has which Muster can run, such as a graph inside of the graph.
struct OtherArg {
  std::string kind;  // "as_graph"
};
using Argument = std::variant<None, TensorArg, TensorsArg, IntArg, IntsArg, FloatArg, FloatsArg,
                              BoolArg, BoolsArg, std::string, std::vector<std::string>, DTypeArg,
                              MemoryFormatArg, LayoutArg, DeviceArg, OtherArg>;

struct NamedArgument {
  std::string name;  // as in the operator's schema
  Argument value;
};

// One value that an operator returns.
struct Output {
  enum class Kind { kTensor, kTensors, kNumber, kNone } kind = Kind::kNone;
  std::vector<Slot> slots;
};

// A line of the user's Python.
struct Place {
  std::string file;
  int64_t line = 0;
  std::string code;
  // "net.py, line 12: `return torch.rand(3)`"; "an unknown line" if the file has no stack traces.
  std::string text() const;
};

struct Node {
  std::string target;  // "torch.ops.aten.conv2d.default"
  std::vector<NamedArgument> inputs;
  std::vector<Output> outputs;
  Place place;
  std::string module;  // the innermost of the model's modules: "layer1.0.bn1"; may be empty

  // Nothing if there is none of this name.
  const Argument* find(std::string_view name) const;
};

// A parameter, buffer or constant that the file contains.
struct Weight {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;    // their product, but for zeros, is an int64_t
  std::vector<int64_t> strides;  // in elements
  bool requires_grad = true;     // of a parameter: it is not frozen
  size_t entry = 0;              // of the zip
  // The elements lie within these bytes: element (i, j, ..) at i * strides[0] + ...
  std::span<const std::byte> data;

  int64_t elements() const;
  bool is_contiguous() const;
  // The same memory, seen the same way: tied weights.
  bool is_same(const Weight& other) const;
};

struct Input {
  enum class Kind { kUser, kParameter, kBuffer, kConstant } kind = Kind::kUser;
  Slot slot = kNoSlot;
  std::string name;  // of a parameter or buffer: "conv1.weight"; of an input: its argument's
  Weight weight;     // not of kUser
};

struct Program {
  std::string torch_version;
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::vector<Slot> outputs;  // tensors
  // Of each slot that is a tensor, if the file tells.
  std::vector<std::optional<TensorMeta>> slots;
  Assumptions assumptions = {};  // NOLINT(readability-redundant-member-init)
};

// A .pt2 in memory.
class File {
 public:
  // Errors: kIo, kJob.
  static Result<File> open(const std::string& path);
  // `bytes` must outlive it; `name` stands for the file in errors.
  static Result<File> parse(std::span<const std::byte> bytes, const std::string& name);

  const Program& program() const { return program_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Of all bytes of the file.
  Hash128 hash() const;

 private:
  std::unique_ptr<MappedFile> mapped_;
  std::span<const std::byte> bytes_;
  std::vector<ZipEntry> entries_;
  Program program_;
};

}  // namespace muster::pt2
