#include "muster/model/layers.h"
#include "muster/model/shape.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

class LeNet : public Net {
 public:
  LeNet(int64_t channels, int64_t height, int64_t width, int64_t outputs)
      : conv1_(register_module("conv1", convolution(channels, kFirst))),
        conv2_(register_module("conv2", convolution(kFirst, kSecond))),
        fc1_(register_module("fc1", linear(kSecond * reduced(height) * reduced(width), kHidden))),
        fc2_(register_module("fc2", linear(kHidden, outputs))) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor x = at::relu(at::max_pool2d((*conv1_)(input), 2));
    x = at::relu(at::max_pool2d((*conv2_)(x), 2));
    return (*fc2_)(at::relu((*fc1_)(x.flatten(1))));
  }

  // What is left of a side after both convolutions and poolings.
  static int64_t reduced(int64_t side) { return ((side - kKernel + 1) / 2 - kKernel + 1) / 2; }

 private:
  static constexpr int64_t kKernel = 5;
  static constexpr int64_t kFirst = 20;
  static constexpr int64_t kSecond = 50;
  static constexpr int64_t kHidden = 500;

  static std::shared_ptr<Conv2d> convolution(int64_t in, int64_t out) {
    return std::make_shared<Conv2d>(
        Conv2dOptions{.in = in, .out = out, .kernel = {kKernel, kKernel}});
  }
  static std::shared_ptr<Linear> linear(int64_t in, int64_t out) {
    return std::make_shared<Linear>(LinearOptions{.in = in, .out = out});
  }

  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<Linear> fc1_;
  std::shared_ptr<Linear> fc2_;
};

}  // namespace

Result<std::shared_ptr<Net>> make_lenet(const config::Node& args, const data::Schema& schema,
                                        const std::shared_ptr<LaneContext>& /*lane*/) {
  MUSTER_RETURN_IF_ERROR(config::ArgReader(args, "the lenet model").finish());
  MUSTER_RETURN_IF_ERROR(need_images("lenet", schema));
  const auto& shape = schema.input_shape;
  if (LeNet::reduced(shape[1]) < 1 || LeNet::reduced(shape[2]) < 1) {
    return Error(ErrorKind::kJob,
                 "model lenet needs images of at least 16x16, but the data's are {}",
                 shape_text(shape));
  }
  return std::shared_ptr<Net>(
      std::make_shared<LeNet>(shape[0], shape[1], shape[2], output_features(schema)));
}

}  // namespace muster::model
