// Nodes of an exported model, made ready to run: operators of libtorch as they are, and arithmetic
// on sizes. Those that Muster replaces are in pt2_replacements.h.
//
// As the net that they belong to, they are used by one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "muster/base/result.h"
#include "muster/model/pt2_arguments.h"
#include "muster/pt2/program.h"

namespace muster::model {

class Pt2Node {
 public:
  virtual ~Pt2Node();
  // Reads its arguments from `values` and puts its results there. Throws what libtorch throws.
  virtual void run(Pt2Values& values, bool training) = 0;
};

// What nodes are made from.
struct Pt2Graph {
  const Pt2Values& fixed;   // by slot: what is the same in every run; None: the rest
  const std::string& file;  // its name, for errors
};

// An operator with the arguments of a node.
class Pt2Operator {
 public:
  // Errors (kJob): libtorch does not have it, or with other arguments or results.
  static Result<Pt2Operator> prepare(const pt2::Node& node, const Pt2Graph& graph);

  // Its arguments in the order of the schema; valid until the next call.
  std::vector<c10::IValue>& arguments(const Pt2Values& values);
  // Of an argument in there.
  size_t position(std::string_view name) const { return arguments_.position(name); }
  // Runs it with those arguments and stores the results.
  void call(Pt2Values& values);
  // Stores other results, and forgets the arguments.
  void store(std::vector<c10::IValue>&& results, Pt2Values& values);

  const c10::OperatorHandle& handle() const { return handle_; }

 private:
  Pt2Operator(c10::OperatorHandle handle, Pt2Arguments arguments, std::vector<pt2::Output> outputs)
      : handle_(std::move(handle)),
        arguments_(std::move(arguments)),
        outputs_(std::move(outputs)) {}

  c10::OperatorHandle handle_;
  Pt2Arguments arguments_;
  std::vector<pt2::Output> outputs_;
  std::vector<c10::IValue> stack_;
};

// As it is. Errors also for an operator that draws from torch's global generator.
Result<std::unique_ptr<Pt2Node>> make_operator(const pt2::Node& node, const Pt2Graph& graph);
// As it is, but its argument `train` follows the mode of the net.
Result<std::unique_ptr<Pt2Node>> make_recurrent(const pt2::Node& node, const Pt2Graph& graph);
// Treatment::kNumbers.
Result<std::unique_ptr<Pt2Node>> make_numbers(const pt2::Node& node, const Pt2Graph& graph);

}  // namespace muster::model
