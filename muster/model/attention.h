// Self-attention and the transformer block, as GPT-2 has them and nanoGPT names them.
#pragma once

#include <memory>
#include <optional>

#include "muster/model/dropout.h"
#include "muster/model/layers.h"

namespace muster::model {

struct AttentionOptions {
  int64_t width = 0;
  int64_t heads = 1;   // divides width
  bool causal = true;  // each place sees itself and what is before it
  double dropout = 0;
  bool bias = true;
  int64_t expand = 4;                       // the hidden layer of the block is this much wider
  std::optional<Init> init = std::nullopt;  // of linear layers; default: PyTorch's
  std::optional<Init> closing_init =
      std::nullopt;  // of the two that are added to the residual; default: init
};

// [samples, length, width] to the same shape. Uses torch's fused kernel where attention weights
// need no dropout, and its own steps where they do; the two agree to rounding. Names: c_attn,
// c_proj.
class SelfAttention : public Layer {
 public:
  SelfAttention(const AttentionOptions& options, const std::shared_ptr<LaneContext>& lane);
  torch::Tensor forward(const torch::Tensor& input) override;

  // For tests: the unfused steps even without dropout.
  void set_fused(bool fused) { fused_ = fused; }

 private:
  torch::Tensor attend(const torch::Tensor& query, const torch::Tensor& key,
                       const torch::Tensor& value);

  AttentionOptions options_;
  bool fused_ = true;
  std::shared_ptr<Linear> c_attn_;
  std::shared_ptr<Linear> c_proj_;
  std::shared_ptr<Dropout> attn_dropout_;
  std::shared_ptr<Dropout> resid_dropout_;
};

// Attention, then a hidden layer with gelu, each on a normed input and added to what came in.
// Names: ln_1, attn, ln_2, mlp.c_fc, mlp.c_proj.
class TransformerBlock : public Layer {
 public:
  TransformerBlock(const AttentionOptions& options, const std::shared_ptr<LaneContext>& lane);
  torch::Tensor forward(const torch::Tensor& input) override;

 private:
  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<SelfAttention> attn_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<Layer> mlp_;
};

}  // namespace muster::model
