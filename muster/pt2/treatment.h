// What becomes of each node of an exported model, so that it can keep Muster's promise.
//
// Most nodes run as they are, through libtorch's dispatcher. Nodes that draw random numbers or
// update statistics are replaced by Muster's own: masks then follow from (seed, step, lane, node),
// and statistics are reduced over the lanes. Nodes whose effect depends on training or evaluation,
// which torch.export fixes, follow the mode of the net. What cannot be replaced is refused, with
// the line of the user's Python.
//
// Pure. Whether libtorch has an operator of that name, only the interpreter can tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/pt2/program.h"

namespace muster::pt2 {

enum class Treatment {
  kRun,               // as it is
  kNumbers,           // arithmetic on sizes: apply() in numbers.h
  kSkip,              // an assertion of the exporter, or a counter that nothing uses
  kDropout,           // keyed, in training only; also dropout_, which changes its input
  kFeatureDropout,    // likewise, whole channels (Dropout1d, 2d, 3d)
  kBatchNorm,         // statistics of the lane in training, running ones in evaluation
  kAttention,         // scaled_dot_product_attention with dropout: keyed, in training only
  kRecurrent,         // lstm, gru, rnn: its argument `train` follows the mode
  kRecurrentDropout,  // the same with dropout between its layers: keyed, in training only
};

// How many dropouts a net can have. Layers of a recurrent net have one between any two.
inline constexpr int64_t kMostDropouts = int64_t{1} << 20;

struct Plan {
  std::vector<Treatment> nodes;  // one for each node
};

struct PlanOptions {
  // Whether a model that was exported in evaluation mode, without dropout and with fixed
  // statistics, is accepted.
  bool evaluation_mode = false;
};

// Errors (kJob): a node that draws random numbers in a way that has no replacement, or is no
// operator; more dropouts than possible; a model that was exported in evaluation mode. They call
// the file `name`.
Result<Plan> plan(const Program& program, const std::string& name, const PlanOptions& options);

// What was replaced and how, a line for each kind: "2 dropouts: masks follow from ... (dropout1,
// dropout2)". Empty: nothing.
std::vector<std::string> describe(const Program& program, const Plan& plan);

// Whether the operator ("aten::rand") draws from the default generator, as far as is known without
// libtorch.
bool is_random(std::string_view name);

}  // namespace muster::pt2
