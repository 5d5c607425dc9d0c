#include "muster/model/attention.h"

#include <cmath>
#include <limits>

#include "muster/base/check.h"

namespace muster::model {
namespace {

std::shared_ptr<Linear> linear(int64_t in, int64_t out, bool bias, std::optional<Init> init) {
  return std::make_shared<Linear>(
      LinearOptions{.in = in, .out = out, .bias = bias, .weight_init = init});
}

std::optional<Init> closing_init(const AttentionOptions& options) {
  return options.closing_init ? options.closing_init : options.init;
}

class Mlp : public Layer {
 public:
  Mlp(const AttentionOptions& options, const std::shared_ptr<LaneContext>& lane) {
    const int64_t hidden = options.expand * options.width;
    c_fc_ = register_module("c_fc", linear(options.width, hidden, options.bias, options.init));
    c_proj_ = register_module("c_proj",
                              linear(hidden, options.width, options.bias, closing_init(options)));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout, lane));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    return (*dropout_)((*c_proj_)(at::gelu((*c_fc_)(input))));
  }

 private:
  std::shared_ptr<Linear> c_fc_;
  std::shared_ptr<Linear> c_proj_;
  std::shared_ptr<Dropout> dropout_;
};

}  // namespace

SelfAttention::SelfAttention(const AttentionOptions& options,
                             const std::shared_ptr<LaneContext>& lane)
    : options_(options) {
  MUSTER_CHECK(options.heads > 0 && options.width % options.heads == 0,
               "the number of heads must divide the width");
  const int64_t width = options.width;
  c_attn_ = register_module("c_attn", linear(width, 3 * width, options.bias, options.init));
  c_proj_ = register_module("c_proj", linear(width, width, options.bias, closing_init(options)));
  attn_dropout_ = register_module("attn_dropout", std::make_shared<Dropout>(options.dropout, lane));
  resid_dropout_ =
      register_module("resid_dropout", std::make_shared<Dropout>(options.dropout, lane));
}

torch::Tensor SelfAttention::attend(const torch::Tensor& query, const torch::Tensor& key,
                                    const torch::Tensor& value) {
  if (fused_ && (options_.dropout == 0 || !is_training())) {
    return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                            options_.causal);
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
  torch::Tensor scores = at::matmul(query, key.transpose(-2, -1)) * scale;
  if (options_.causal) {
    const int64_t length = query.size(-2);
    const torch::Tensor later =
        at::ones({length, length}, query.options().dtype(torch::kBool)).triu_(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::matmul((*attn_dropout_)(at::softmax(scores, -1)), value);
}

torch::Tensor SelfAttention::forward(const torch::Tensor& input) {
  const int64_t samples = input.size(0);
  const int64_t length = input.size(1);
  const int64_t width = options_.width;
  const int64_t heads = options_.heads;
  // [samples, length, 3 * width] to three times [samples, heads, length, width / heads].
  const auto parts = (*c_attn_)(input).split(width, /*dim=*/2);
  const auto by_head = [&](const torch::Tensor& part) {
    return part.view({samples, length, heads, width / heads}).transpose(1, 2);
  };
  const torch::Tensor y = attend(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]));
  const torch::Tensor joined = y.transpose(1, 2).reshape({samples, length, width});
  return (*resid_dropout_)((*c_proj_)(joined));
}

TransformerBlock::TransformerBlock(const AttentionOptions& options,
                                   const std::shared_ptr<LaneContext>& lane)
    : ln_1_(register_module("ln_1", std::make_shared<LayerNorm>(options.width, options.bias))),
      attn_(register_module("attn", std::make_shared<SelfAttention>(options, lane))),
      ln_2_(register_module("ln_2", std::make_shared<LayerNorm>(options.width, options.bias))),
      mlp_(register_module("mlp", std::make_shared<Mlp>(options, lane))) {}

torch::Tensor TransformerBlock::forward(const torch::Tensor& input) {
  const torch::Tensor x = input + (*attn_)((*ln_1_)(input));
  return x + (*mlp_)((*ln_2_)(x));
}

}  // namespace muster::model
