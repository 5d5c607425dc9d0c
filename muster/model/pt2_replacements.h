// What stands in the place of nodes of an exported model that draw random numbers or update
// statistics (muster/pt2/treatment.h says which).
//
// In evaluation they compute what PyTorch computes. In training masks come from Dropout layers of
// Muster, so that they are a function of seed, step, lane and layer; and statistics are those of
// the lane, which train/ reduces.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "muster/model/batch_norm.h"
#include "muster/model/dropout.h"
#include "muster/model/pt2_node.h"

namespace muster::model {

Result<std::unique_ptr<Pt2Node>> make_dropout(const pt2::Node& node, const Pt2Graph& graph,
                                              std::shared_ptr<Dropout> dropout);
// Whole channels: the first two dimensions have a mask, the others share it.
Result<std::unique_ptr<Pt2Node>> make_feature_dropout(const pt2::Node& node, const Pt2Graph& graph,
                                                      std::shared_ptr<Dropout> dropout);
Result<std::unique_ptr<Pt2Node>> make_batch_norm(const pt2::Node& node, const Pt2Graph& graph,
                                                 std::shared_ptr<BatchStatistics> statistics);
// The dropout is on the weights of scaled_dot_product_attention, which are made explicit.
Result<std::unique_ptr<Pt2Node>> make_attention(const pt2::Node& node, const Pt2Graph& graph,
                                                std::shared_ptr<Dropout> dropout);
// Layer by layer, with one of `dropouts` behind each layer but the last.
Result<std::unique_ptr<Pt2Node>> make_recurrent_dropout(
    const pt2::Node& node, const Pt2Graph& graph, std::vector<std::shared_ptr<Dropout>> dropouts);

// The options of scaled_dot_product_attention. For tests, too.
struct AttentionCall {
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  at::Tensor mask = {};  // undefined: none; bool: where it is true is looked at; else added
  bool causal = false;
  std::optional<double> scale = std::nullopt;
  bool share_heads = false;  // enable_gqa: keys have fewer heads than queries
};
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const AttentionCall& call, Dropout& dropout);

}  // namespace muster::model
