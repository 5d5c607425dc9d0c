// A worker that knows one model more than muster-worker: the whole program.
#include <memory>

#include "muster/model/args.h"
#include "muster/model/layers.h"
#include "muster/train/worker.h"

namespace {

using muster::Result;
namespace model = muster::model;

// Looks at an image twice, as it is and at half its size, and decides on both views together.
class TwoScales : public model::Net {
 public:
  TwoScales(const muster::data::Schema& schema, int64_t channels) {
    const model::Conv2dOptions conv{
        .in = schema.input_shape[0], .out = channels, .kernel = {5, 5}, .padding = {2, 2}};
    fine_ = register_module("fine", std::make_shared<model::Conv2d>(conv));
    coarse_ = register_module("coarse", std::make_shared<model::Conv2d>(conv));
    head_ = register_module("head", std::make_shared<model::Linear>(model::LinearOptions{
                                        .in = 2 * channels * 7 * 7, .out = schema.classes}));
  }

  torch::Tensor forward(const torch::Tensor& image) override {
    const auto small = at::avg_pool2d(image, 2);
    return (*head_)(at::cat({look(*fine_, image), look(*coarse_, small)}, 1));
  }

 private:
  static torch::Tensor look(model::Conv2d& conv, const torch::Tensor& image) {
    return at::adaptive_avg_pool2d(at::relu(conv(image)), {7, 7}).flatten(1);
  }
  std::shared_ptr<model::Conv2d> fine_, coarse_;
  std::shared_ptr<model::Linear> head_;
};

// Called once for each lane thread, with the job's model.args and what the data looks like.
Result<std::shared_ptr<model::Net>> make_two_scales(const muster::config::Node& args,
                                                    const muster::data::Schema& schema,
                                                    const std::shared_ptr<model::LaneContext>&) {
  muster::config::ArgReader reader(args, "the two-scales model");
  MUSTER_TRY(const int64_t channels, model::get_count(reader, "channels", 16));
  MUSTER_RETURN_IF_ERROR(reader.finish());  // an argument that nobody asked for is a mistake
  if (schema.input_shape.size() != 3 || schema.classes == 0) {
    return muster::Error(muster::ErrorKind::kJob, "model two-scales needs images with classes");
  }
  return std::shared_ptr<model::Net>(std::make_shared<TwoScales>(schema, channels));
}

}  // namespace

int main(int argc, char** argv) {
  muster::train::Registries registries;  // starts with everything that muster-worker knows
  registries.models.add_model("two-scales", make_two_scales);
  return muster::train::worker_main(argc, argv, registries);
}
