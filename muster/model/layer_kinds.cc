#include "muster/model/layer_kinds.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "muster/model/args.h"
#include "muster/model/attention.h"
#include "muster/model/batch_norm.h"
#include "muster/model/dropout.h"
#include "muster/model/embedding_bag.h"
#include "muster/model/shape.h"

namespace muster::model {
namespace {

std::string describe(const Flow& flow) {
  if (flow.ids) return "records of ids";
  return flow.tokens ? fmt::format("{} tokens", shape_text(flow.shape)) : shape_text(flow.shape);
}

// "linear layer needs a flat input, but gets 16x5x5; put 'flatten' before it"
Error wrong_input(const Site& site, std::string_view needed) {
  std::string_view remedy;
  if (site.in.ids) {
    remedy = "; put 'embedding_bag' before it";
  } else if (site.in.tokens) {
    remedy = "; put 'embedding' before it";
  } else if (site.in.is_image() && needed == "a flat input") {
    remedy = "; put 'flatten' before it";
  }
  return site.item.error("{} layer needs {}, but gets {}{}", site.kind, needed, describe(site.in),
                         remedy);
}

// `out: 10`, or `out: classes` for as many as the data asks for.
Result<int64_t> get_outputs(const Site& site) {
  const config::Node* node = site.args.get("out");
  if (node != nullptr && node->text() == "classes") return output_features(site.schema);
  return get_count(site.args, "out");
}

Result<MadeLayer> make_linear(const Site& site) {
  if (!site.in.is_flat() && !site.in.is_sequence()) return wrong_input(site, "a flat input");
  LinearOptions options{.in = site.in.shape.back()};
  MUSTER_TRY(options.out, get_outputs(site));
  MUSTER_TRY(options.bias, site.args.get_bool("bias", true));
  Flow out = site.in;
  out.shape.back() = options.out;
  return MadeLayer{std::make_shared<Linear>(options), out};
}

// A window that slides over an image, for convolution and pooling alike.
struct Window {
  Pair kernel;
  Pair stride;
  Pair padding;
};

Result<Flow> slide(const Site& site, const Window& window, int64_t channels) {
  Flow out = site.in;
  out.shape[0] = channels;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t room = site.in.shape[i + 1] + 2 * window.padding[i] - window.kernel[i];
    if (room < 0) {
      return site.item.error("{} layer's kernel of {}x{} is larger than its input of {}", site.kind,
                             window.kernel[0], window.kernel[1], describe(site.in));
    }
    out.shape[i + 1] = room / window.stride[i] + 1;
  }
  return out;
}

Result<MadeLayer> make_conv2d(const Site& site) {
  if (!site.in.is_image()) return wrong_input(site, "an image (channels x height x width)");
  Conv2dOptions options{.in = site.in.shape[0]};
  MUSTER_TRY(options.out, get_count(site.args, "out"));
  MUSTER_TRY(options.kernel, get_pair(site.args, "kernel"));
  MUSTER_TRY(options.stride, get_pair(site.args, "stride", Pair{1, 1}));
  MUSTER_TRY(options.padding, get_pair(site.args, "padding", Pair{0, 0}, 0));
  MUSTER_TRY(options.groups, get_count(site.args, "groups", 1));
  MUSTER_TRY(options.bias, site.args.get_bool("bias", true));
  if (options.in % options.groups != 0 || options.out % options.groups != 0) {
    return site.item.error(
        "conv2d layer's {} groups must divide its {} input and {} output channels", options.groups,
        options.in, options.out);
  }
  MUSTER_TRY(Flow out, slide(site, {options.kernel, options.stride, options.padding}, options.out));
  return MadeLayer{std::make_shared<Conv2d>(options), out};
}

class Pool : public Layer {
 public:
  Pool(const Window& window, bool max) : window_(window), max_(max) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return max_ ? at::max_pool2d(input, window_.kernel, window_.stride, window_.padding)
                : at::avg_pool2d(input, window_.kernel, window_.stride, window_.padding);
  }

 private:
  Window window_;
  bool max_;
};

Result<MadeLayer> make_pool(const Site& site) {
  if (!site.in.is_image()) return wrong_input(site, "an image (channels x height x width)");
  Window window{};
  MUSTER_TRY(window.kernel, get_pair(site.args, "kernel"));
  MUSTER_TRY(window.stride, get_pair(site.args, "stride", window.kernel));
  MUSTER_TRY(window.padding, get_pair(site.args, "padding", Pair{0, 0}, 0));
  for (size_t i = 0; i < 2; ++i) {
    if (2 * window.padding[i] > window.kernel[i]) {
      return site.args.get("padding")->error("padding must be at most half the kernel");
    }
  }
  MUSTER_TRY(Flow out, slide(site, window, site.in.shape[0]));
  return MadeLayer{std::make_shared<Pool>(window, site.kind == "maxpool2d"), out};
}

class AdaptivePool : public Layer {
 public:
  explicit AdaptivePool(const Pair& out) : out_(out) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return at::adaptive_avg_pool2d(input, out_);
  }

 private:
  Pair out_;
};

Result<MadeLayer> make_adaptive_pool(const Site& site) {
  if (!site.in.is_image()) return wrong_input(site, "an image (channels x height x width)");
  MUSTER_TRY(const Pair out, get_pair(site.args, "out", Pair{1, 1}));
  return MadeLayer{std::make_shared<AdaptivePool>(out),
                   {{site.in.shape[0], out[0], out[1]}, false}};
}

Result<MadeLayer> make_batchnorm(const Site& site) {
  if (!site.in.is_image() && !site.in.is_flat())
    return wrong_input(site, "an image or a flat input");
  BatchNormOptions options{.channels = site.in.shape[0]};
  MUSTER_TRY(options.eps, get_positive(site.args, "eps", options.eps));
  MUSTER_TRY(options.momentum, get_share(site.args, "momentum", options.momentum));
  return MadeLayer{std::make_shared<BatchNorm>(options), site.in};
}

Result<MadeLayer> make_layernorm(const Site& site) {
  if (!site.in.is_flat() && !site.in.is_sequence()) return wrong_input(site, "a flat input");
  MUSTER_TRY(const double eps, get_positive(site.args, "eps", 1e-5));
  MUSTER_TRY(const bool bias, site.args.get_bool("bias", true));
  return MadeLayer{std::make_shared<LayerNorm>(site.in.shape.back(), bias, eps), site.in};
}

Result<MadeLayer> make_dropout(const Site& site) {
  if (site.in.tokens) return wrong_input(site, "values");
  MUSTER_TRY(const double p, get_share(site.args, "p", 0.5));
  return MadeLayer{std::make_shared<Dropout>(p, site.lane), site.in};
}

Result<MadeLayer> make_activation(const Site& site) {
  if (site.in.tokens) return wrong_input(site, "values");
  return MadeLayer{std::make_shared<Function>(find_activation(site.kind)), site.in};
}

Result<MadeLayer> make_flatten(const Site& site) {
  if (site.in.tokens) return wrong_input(site, "values");
  const auto features = static_cast<int64_t>(data::Schema::count(site.in.shape));
  return MadeLayer{std::make_shared<Function>([](const torch::Tensor& x) { return x.flatten(1); }),
                   {{features}, false}};
}

Result<MadeLayer> make_embedding(const Site& site) {
  if (!site.in.tokens || site.in.shape.size() != 1) {
    return site.item.error("embedding layer needs tokens, but gets {}", describe(site.in));
  }
  if (site.schema.has_values) {
    return site.item.error("embedding layer cannot take ids with values; use 'embedding_bag'");
  }
  MUSTER_TRY(const int64_t width, get_count(site.args, "width"));
  // The data's vocabulary, unless the weights are to have room for more.
  MUSTER_TRY(const int64_t rows,
             get_count(site.args, "vocabulary", site.schema.classes, site.schema.classes));
  return MadeLayer{std::make_shared<Embedding>(rows, width), {{site.in.shape[0], width}, false}};
}

Result<MadeLayer> make_embedding_bag(const Site& site) {
  if (!site.in.ids) {
    return site.item.error("embedding_bag layer needs records of ids, but gets {}",
                           describe(site.in));
  }
  if (site.lane->rows == nullptr) {
    return site.item.error("embedding_bag layer needs rows: set tables.width, for example to 16");
  }
  MUSTER_TRY(const std::string mode, site.args.get_string("mode", "sum"));
  if (mode != "sum" && mode != "mean") {
    return site.args.get("mode")->error("mode must be sum or mean, not '{}'", mode);
  }
  const ClickShape shape = record_shape(site.schema, *site.lane);
  if (mode == "mean" && shape.values) {
    return site.args.get("mode")->error(
        "mode mean is for ids without values, as in PyTorch; use sum");
  }
  return MadeLayer{std::make_shared<EmbeddingBag>(shape, mode == "mean", site.lane),
                   {{shape.width + shape.numbers}, false}};
}

Result<MadeLayer> make_positional(const Site& site) {
  if (!site.in.is_sequence()) return wrong_input(site, "a sequence (length x width)");
  MUSTER_TRY(const int64_t rows,
             get_count(site.args, "context", site.in.shape[0], site.in.shape[0]));
  return MadeLayer{std::make_shared<PositionalEmbedding>(rows, site.in.shape[1]), site.in};
}

Result<MadeLayer> make_attention(const Site& site) {
  if (!site.in.is_sequence()) return wrong_input(site, "a sequence (length x width)");
  AttentionOptions options{.width = site.in.shape[1]};
  MUSTER_TRY(options.heads, get_count(site.args, "heads"));
  MUSTER_TRY(options.causal, site.args.get_bool("causal", false));
  MUSTER_TRY(options.dropout, get_share(site.args, "dropout", 0));
  MUSTER_TRY(options.bias, site.args.get_bool("bias", true));
  MUSTER_TRY(options.expand, get_count(site.args, "expand", options.expand));
  if (options.width % options.heads != 0) {
    return site.item.error("attention_block layer's width {} must be a multiple of its {} heads",
                           options.width, options.heads);
  }
  return MadeLayer{std::make_shared<TransformerBlock>(options, site.lane), site.in};
}

class Residual : public Layer {
 public:
  Residual(std::shared_ptr<Layer> body, std::shared_ptr<Layer> projection)
      : body_(register_module("body", std::move(body))), projection_(std::move(projection)) {
    if (projection_) register_module("projection", projection_);
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    return (*body_)(input) + (projection_ ? (*projection_)(input) : input);
  }

 private:
  std::shared_ptr<Layer> body_;
  std::shared_ptr<Layer> projection_;  // or nullptr
};

// A linear map, without bias, from what goes into a residual layer to what its body gives: a 1x1
// convolution whose stride makes up for lost height and width, or a linear layer. nullptr if none
// fits.
std::shared_ptr<Layer> make_projection(const Flow& in, const Flow& out) {
  if (in.is_image() && out.is_image()) {
    Conv2dOptions options{.in = in.shape[0], .out = out.shape[0], .bias = false};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t from = in.shape[i + 1];
      const int64_t to = out.shape[i + 1];
      options.stride[i] = (from + to - 1) / to;
      if ((from - 1) / options.stride[i] + 1 != to) return nullptr;
    }
    return std::make_shared<Conv2d>(options);
  }
  const bool same_length = in.is_flat() || in.shape[0] == out.shape[0];
  if (in.shape.size() != out.shape.size() || in.is_image() || !same_length) return nullptr;
  return std::make_shared<Linear>(
      LinearOptions{.in = in.shape.back(), .out = out.shape.back(), .bias = false});
}

Result<MadeLayer> make_residual(const Site& site) {
  if (site.in.tokens) return wrong_input(site, "values");
  const config::Node* layers = site.args.get("layers");
  if (layers == nullptr) return site.item.error("residual layer needs 'layers', a list of layers");
  MUSTER_TRY(const bool project, site.args.get_bool("projection", false));
  MUSTER_TRY(MadeSequence body, make_sequence(*layers, site.in, site.schema, site.lane));
  std::shared_ptr<Layer> projection;
  if (project) {
    projection = make_projection(site.in, body.out);
    if (!projection) {
      return site.item.error(
          "residual layer cannot project its input of {} onto the {} that its "
          "layers give",
          describe(site.in), describe(body.out));
    }
  } else if (body.out.shape != site.in.shape) {
    return site.item.error(
        "residual layer adds its input of {} to the {} that its layers give; make the shapes the "
        "same, or add 'projection: true'",
        describe(site.in), describe(body.out));
  }
  return MadeLayer{std::make_shared<Residual>(body.sequence, projection), body.out};
}

constexpr std::array kKinds = {
    LayerKind{"adaptive_avgpool2d", make_adaptive_pool},
    LayerKind{"attention_block", make_attention},
    LayerKind{"avgpool2d", make_pool},
    LayerKind{"batchnorm", make_batchnorm},
    LayerKind{"conv2d", make_conv2d},
    LayerKind{"dropout", make_dropout},
    LayerKind{"embedding", make_embedding},
    LayerKind{"embedding_bag", make_embedding_bag},
    LayerKind{"flatten", make_flatten},
    LayerKind{"gelu", make_activation},
    LayerKind{"layernorm", make_layernorm},
    LayerKind{"linear", make_linear},
    LayerKind{"maxpool2d", make_pool},
    LayerKind{"positional_embedding", make_positional},
    LayerKind{"relu", make_activation},
    LayerKind{"residual", make_residual},
    LayerKind{"sigmoid", make_activation},
    LayerKind{"silu", make_activation},
    LayerKind{"tanh", make_activation},
};

}  // namespace

std::span<const LayerKind> layer_kinds() { return kKinds; }

}  // namespace muster::model
