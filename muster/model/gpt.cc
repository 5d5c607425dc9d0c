#include <algorithm>
#include <array>
#include <cmath>

#include "muster/base/text.h"
#include "muster/model/args.h"
#include "muster/model/attention.h"
#include "muster/model/layers.h"
#include "muster/model/shape.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

constexpr double kDeviation = 0.02;  // of all first weights, as GPT-2's

struct GptShape {
  int64_t vocabulary = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t context = 0;
  double dropout = 0;
  bool bias = false;
};

// Everything but the output layer; a module of its own for the sake of its name.
class Transformer : public Layer {
 public:
  Transformer(const GptShape& shape, const std::shared_ptr<LaneContext>& lane) {
    const Init init = Init::normal(kDeviation);
    wte_ = register_module("wte", std::make_shared<Embedding>(shape.vocabulary, shape.width, init));
    wpe_ = register_module("wpe",
                           std::make_shared<PositionalEmbedding>(shape.context, shape.width, init));
    drop_ = register_module("drop", std::make_shared<Dropout>(shape.dropout, lane));
    // Each layer adds twice to the residual; scaled so, the sum of all keeps its size.
    const AttentionOptions block{
        .width = shape.width,
        .heads = shape.heads,
        .causal = true,
        .dropout = shape.dropout,
        .bias = shape.bias,
        .init = init,
        .closing_init = Init::normal(kDeviation / std::sqrt(2.0 * shape.layers))};
    h_ = std::make_shared<Sequence>();
    for (int64_t i = 0; i < shape.layers; ++i) {
      h_->add(std::make_shared<TransformerBlock>(block, lane));
    }
    register_module("h", h_);
    ln_f_ = register_module("ln_f", std::make_shared<LayerNorm>(shape.width, shape.bias));
  }

  torch::Tensor forward(const torch::Tensor& tokens) override {
    return (*ln_f_)((*h_)((*drop_)((*wpe_)((*wte_)(tokens)))));
  }

  const torch::Tensor& token_weight() const { return wte_->weight(); }

 private:
  std::shared_ptr<Embedding> wte_;
  std::shared_ptr<PositionalEmbedding> wpe_;
  std::shared_ptr<Dropout> drop_;
  std::shared_ptr<Sequence> h_;
  std::shared_ptr<LayerNorm> ln_f_;
};

class Gpt : public Net {
 public:
  Gpt(const GptShape& shape, const std::shared_ptr<LaneContext>& lane)
      : transformer_(register_module("transformer", std::make_shared<Transformer>(shape, lane))) {}

  torch::Tensor forward(const torch::Tensor& tokens) override {
    return at::linear((*transformer_)(tokens), transformer_->token_weight());
  }

 private:
  std::shared_ptr<Transformer> transformer_;
};

struct Size {
  std::string_view name;
  int64_t layers;
  int64_t heads;
  int64_t width;
};

constexpr std::array kSizes = {Size{"tiny", 4, 4, 128}, Size{"small", 6, 6, 384},
                               Size{"gpt2", 12, 12, 768}, Size{"gpt2-medium", 24, 16, 1024}};

Result<Size> get_size(config::ArgReader& args) {
  const config::Node* node = args.get("size");
  if (node == nullptr) return kSizes[0];
  MUSTER_TRY(const std::string name, node->as_string("size"));
  const auto* const size = std::ranges::find(kSizes, name, &Size::name);
  if (size != kSizes.end()) return *size;
  std::vector<std::string> names;
  for (const Size& each : kSizes) names.emplace_back(each.name);
  return node->error("size must be one of {}, not '{}'", join_words(names, "or"), name);
}

Result<GptShape> read_shape(const config::Node& args, const data::Schema& schema) {
  config::ArgReader reader(args, "the gpt model");
  const int64_t length = schema.input_shape[0];
  GptShape shape{.vocabulary = schema.classes};
  MUSTER_TRY(const Size size, get_size(reader));
  MUSTER_TRY(shape.layers, get_count(reader, "layers", size.layers));
  MUSTER_TRY(shape.heads, get_count(reader, "heads", size.heads));
  MUSTER_TRY(shape.width, get_count(reader, "width", size.width));
  MUSTER_TRY(shape.context, get_count(reader, "context", length));
  MUSTER_TRY(shape.dropout, get_share(reader, "dropout", 0));
  MUSTER_TRY(shape.bias, reader.get_bool("bias", false));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  if (shape.width % shape.heads != 0) {
    return args.error("width {} of the gpt model must be a multiple of its {} heads", shape.width,
                      shape.heads);
  }
  if (shape.context < length) {
    return args.error("context {} of the gpt model is shorter than the data's samples of {} tokens",
                      shape.context, length);
  }
  return shape;
}

}  // namespace

Result<std::shared_ptr<Net>> make_gpt(const config::Node& args, const data::Schema& schema,
                                      const std::shared_ptr<LaneContext>& lane) {
  if (schema.input != data::DType::kInt64 || schema.has_ids || schema.input_shape.size() != 1 ||
      schema.classes < 1) {
    return Error(ErrorKind::kJob,
                 "model gpt needs text, but the data's samples are {}; use data of format text",
                 shape_text(schema.input_shape));
  }
  MUSTER_TRY(const GptShape shape, read_shape(args, schema));
  return std::shared_ptr<Net>(std::make_shared<Gpt>(shape, lane));
}

}  // namespace muster::model
