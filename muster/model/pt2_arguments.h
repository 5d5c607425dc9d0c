// The arguments of a node of an exported model, as its operator takes them.
//
// Converted once, when the net is built: constants, weights and defaults of the schema are ready
// then, and a run fills in only what it computed itself.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include "muster/base/result.h"
#include "muster/pt2/program.h"

namespace muster::model {

// By slot of the program: tensors, and numbers as int64_t, double or bool. None: not known.
using Pt2Values = std::vector<c10::IValue>;

at::ScalarType to_torch(pt2::DType dtype);

// Of a sentence about a node: "'net.pt2': torch.ops.aten.conv2d.default (net.py, line 12: `..`)".
std::string describe_node(const std::string& file, const pt2::Node& node);

// A constant number among its arguments, which it must have: pt2::plan() has seen it.
double number_in(const pt2::Node& node, std::string_view name);

class Pt2Arguments {
 public:
  // `fixed`: values that are the same in every run; they are kept. Errors (kJob): an argument that
  // the schema does not have, or of another kind; they call the file `file`.
  static Result<Pt2Arguments> prepare(const pt2::Node& node, const c10::FunctionSchema& schema,
                                      const Pt2Values& fixed, const std::string& file);

  // Sets `stack` to all arguments, in the order of the schema.
  void fill(const Pt2Values& values, std::vector<c10::IValue>& stack) const;
  // Where in the stack it is. The schema must have it.
  size_t position(std::string_view name) const;

 private:
  // A number, or a slot that holds one.
  struct IntItem {
    int64_t value = 0;
    pt2::Slot slot = pt2::kNoSlot;
  };
  // What a run fills in at `position`. One of the three.
  struct Computed {
    size_t position = 0;
    pt2::Slot slot = pt2::kNoSlot;        // a tensor or a number, converted as `kind` says
    std::vector<pt2::Slot> tensors = {};  // NOLINT(readability-redundant-member-init)
    std::vector<IntItem> ints = {};       // NOLINT(readability-redundant-member-init)
    c10::TypeKind kind = c10::TypeKind::TensorType;  // of the value, or of the items of the list
  };
  class Converter;

  static c10::IValue value_of(const Computed& computed, const Pt2Values& values);

  std::vector<std::string> names_;
  std::vector<c10::IValue> constants_;
  std::vector<Computed> computed_;
};

}  // namespace muster::model
