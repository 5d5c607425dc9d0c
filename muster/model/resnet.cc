#include <algorithm>
#include <array>

#include "muster/base/text.h"
#include "muster/model/args.h"
#include "muster/model/batch_norm.h"
#include "muster/model/layers.h"
#include "muster/model/shape.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

std::shared_ptr<Conv2d> convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return std::make_shared<Conv2d>(
      Conv2dOptions{.in = in,
                    .out = out,
                    .kernel = {kernel, kernel},
                    .stride = {stride, stride},
                    .padding = {kernel / 2, kernel / 2},
                    .bias = false,
                    .weight_init = Init::kaiming_fan_out(out * kernel * kernel)});
}

std::shared_ptr<BatchNorm> norm(int64_t channels) {
  return std::make_shared<BatchNorm>(BatchNormOptions{.channels = channels});
}

// How the channels of a block grow: `width` inside, width * expansion at the end.
struct BlockShape {
  int64_t in = 0;
  int64_t width = 0;
  int64_t stride = 1;
  bool bottleneck = false;
  int64_t out() const { return width * (bottleneck ? 4 : 1); }
};

// Two convolutions of 3x3, or (bottleneck) 1x1, 3x3, 1x1, plus the input; where the shape changes,
// the input goes through a 1x1 convolution first. As torchvision, the stride is on the 3x3.
class Block : public Layer {
 public:
  explicit Block(const BlockShape& shape) {
    if (shape.bottleneck) {
      add(convolution(shape.in, shape.width, 1, 1), shape.width);
      add(convolution(shape.width, shape.width, 3, shape.stride), shape.width);
      add(convolution(shape.width, shape.out(), 1, 1), shape.out());
    } else {
      add(convolution(shape.in, shape.width, 3, shape.stride), shape.width);
      add(convolution(shape.width, shape.width, 3, 1), shape.width);
    }
    if (shape.stride != 1 || shape.in != shape.out()) {
      downsample_ = std::make_shared<Sequence>();
      downsample_->add(convolution(shape.in, shape.out(), 1, shape.stride));
      downsample_->add(norm(shape.out()));
      register_module("downsample", downsample_);
    }
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = input;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      if (i > 0) x = x.relu_();
      x = (*norms_[i])((*convolutions_[i])(x));
    }
    // In place where nothing needs the old values for its gradient: BatchNorm keeps its input, not
    // its output; relu keeps its result.
    return x.add_(downsample_ ? (*downsample_)(input) : input).relu_();
  }

 private:
  void add(std::shared_ptr<Conv2d> conv, int64_t channels) {
    const size_t number = convolutions_.size() + 1;
    convolutions_.push_back(register_module(fmt::format("conv{}", number), std::move(conv)));
    norms_.push_back(register_module(fmt::format("bn{}", number), norm(channels)));
  }

  std::vector<std::shared_ptr<Conv2d>> convolutions_;
  std::vector<std::shared_ptr<BatchNorm>> norms_;
  std::shared_ptr<Sequence> downsample_;
};

struct ResNetShape {
  int64_t channels = 0;
  int64_t outputs = 0;
  int64_t width = 64;
  std::vector<int64_t> blocks;  // in each stage
  bool bottleneck = false;
  bool large_stem = false;
};

class ResNet : public Net {
 public:
  explicit ResNet(const ResNetShape& shape) : large_stem_(shape.large_stem) {
    conv1_ = register_module("conv1", large_stem_ ? convolution(shape.channels, shape.width, 7, 2)
                                                  : convolution(shape.channels, shape.width, 3, 1));
    bn1_ = register_module("bn1", norm(shape.width));
    int64_t channels = shape.width;
    for (size_t stage = 0; stage < shape.blocks.size(); ++stage) {
      auto blocks = std::make_shared<Sequence>();
      for (int64_t b = 0; b < shape.blocks[stage]; ++b) {
        const BlockShape block{.in = channels,
                               .width = shape.width << stage,
                               .stride = b == 0 && stage > 0 ? 2 : 1,
                               .bottleneck = shape.bottleneck};
        blocks->add(std::make_shared<Block>(block));
        channels = block.out();
      }
      stages_.push_back(register_module(fmt::format("layer{}", stage + 1), blocks));
    }
    fc_ = register_module(
        "fc", std::make_shared<Linear>(LinearOptions{.in = channels, .out = shape.outputs}));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = (*bn1_)((*conv1_)(input)).relu_();
    if (large_stem_) x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& stage : stages_) x = (*stage)(x);
    return (*fc_)(x.mean({2, 3}));
  }

 private:
  bool large_stem_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm> bn1_;
  std::vector<std::shared_ptr<Sequence>> stages_;
  std::shared_ptr<Linear> fc_;
};

struct Size {
  int64_t size;
  std::vector<int64_t> blocks;
  bool bottleneck;
};

const std::vector<Size>& sizes() {
  static const std::vector<Size> kSizes = {
      {8, {1, 1, 1}, false},  {14, {2, 2, 2}, false},   {18, {2, 2, 2, 2}, false},
      {20, {3, 3, 3}, false}, {32, {5, 5, 5}, false},   {34, {3, 4, 6, 3}, false},
      {44, {7, 7, 7}, false}, {50, {3, 4, 6, 3}, true}, {56, {9, 9, 9}, false},
  };
  return kSizes;
}

Result<bool> wants_large_stem(config::ArgReader& args, const data::Schema& schema, bool small_net) {
  const config::Node* node = args.get("stem");
  if (node == nullptr) {
    return !small_net && std::min(schema.input_shape[1], schema.input_shape[2]) >= 64;
  }
  MUSTER_TRY(const std::string stem, node->as_string("stem"));
  if (stem != "large" && stem != "small") {
    return node->error("stem must be large or small, not '{}'", stem);
  }
  if (stem == "large" && small_net) {
    return node->error("stem: large is for the sizes 18, 34 and 50");
  }
  return stem == "large";
}

}  // namespace

Result<std::shared_ptr<Net>> make_resnet(const config::Node& args, const data::Schema& schema,
                                         const std::shared_ptr<LaneContext>& /*lane*/) {
  MUSTER_RETURN_IF_ERROR(need_images("resnet", schema));
  config::ArgReader reader(args, "the resnet model");
  MUSTER_TRY(const int64_t wanted, reader.get_int("size", 20));
  const auto size = std::ranges::find(sizes(), wanted, &Size::size);
  if (size == sizes().end()) {
    return args.find("size")->error(
        "size must be one of 8, 14, 18, 20, 32, 34, 44, 50 and 56, not {}", wanted);
  }
  const bool small_net = size->blocks.size() == 3;
  MUSTER_TRY(const bool large_stem, wants_large_stem(reader, schema, small_net));
  MUSTER_TRY(const int64_t width, get_count(reader, "width", small_net ? 16 : 64));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  return std::shared_ptr<Net>(
      std::make_shared<ResNet>(ResNetShape{.channels = schema.input_shape[0],
                                           .outputs = output_features(schema),
                                           .width = width,
                                           .blocks = size->blocks,
                                           .bottleneck = size->bottleneck,
                                           .large_stem = large_stem}));
}

}  // namespace muster::model
