#include "muster/model/dropout.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "muster/base/check.h"
#include "muster/model/random_fill.h"

namespace muster::model {
namespace {

constexpr int kLayerBits = 20;
static_assert(kMostDropouts == int64_t{1} << kLayerBits);

torch::Tensor dropped(const torch::Tensor& input, double p, const RandomStream& stream) {
  const torch::Tensor in = input.contiguous();
  torch::Tensor out = torch::empty_like(in);
  const auto size = static_cast<size_t>(in.numel());
  if (in.scalar_type() == torch::kFloat32) {
    apply_dropout(stream, p, {in.const_data_ptr<float>(), size}, {out.data_ptr<float>(), size});
  } else {
    TORCH_CHECK(in.scalar_type() == torch::kBFloat16, "dropout works on float32 and bfloat16, not ",
                in.scalar_type());
    apply_dropout(stream, p, {static_cast<const uint16_t*>(in.const_data_ptr()), size},
                  {static_cast<uint16_t*>(out.mutable_data_ptr()), size});
  }
  return out;
}

// Dropout is linear, so its backward is the same function with the same mask on the gradient; made
// of apply(), so that a gradient of a gradient works too.
class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, double p, int64_t seed, int64_t step,
                               int64_t place) {
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    context->saved_data["step"] = step;
    context->saved_data["place"] = place;
    return dropped(input, p,
                   RandomStream(static_cast<uint64_t>(seed), Purpose::kDropout,
                                static_cast<uint64_t>(step), static_cast<uint64_t>(place)));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto& saved = context->saved_data;
    return {apply(gradients[0], saved["p"].toDouble(), saved["seed"].toInt(), saved["step"].toInt(),
                  saved["place"].toInt()),
            torch::Tensor(), torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

Dropout::Dropout(double p, std::shared_ptr<const LaneContext> lane)
    : p_(p), lane_(std::move(lane)) {
  MUSTER_CHECK(p >= 0 && p < 1, "dropout needs 0 <= p < 1");
  MUSTER_CHECK(lane_ != nullptr, "dropout needs the lane's context");
}

void Dropout::set_number(int64_t number) {
  MUSTER_CHECK(number >= 0 && number < kMostDropouts, "too many dropout layers");
  number_ = number;
}

torch::Tensor Dropout::forward(const torch::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  MUSTER_CHECK(number_ >= 0, "dropout has no layer number: see number_dropouts()");
  return DropoutFunction::apply(input, p_, static_cast<int64_t>(lane_->seed), lane_->step,
                                lane_->lane << kLayerBits | number_);
}

void number_dropouts(Net& net) {
  int64_t number = 0;
  for (const auto& module : net.modules()) {
    if (auto* dropout = dynamic_cast<Dropout*>(module.get())) dropout->set_number(number++);
  }
}

}  // namespace muster::model
