#include "muster/model/losses.h"

namespace muster::model {
namespace {

// One row of scores per target, whether the samples are images or every place of a text is one.
torch::Tensor score_rows(const torch::Tensor& output, const torch::Tensor& target) {
  TORCH_CHECK(output.dim() == target.dim() + 1,
              "cross_entropy needs one row of scores per target: ", "the model gives ",
              output.sizes(), " for targets ", target.sizes());
  return output.reshape({-1, output.size(-1)});
}

torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return at::cross_entropy_loss(score_rows(output, target).to(torch::kFloat32),
                                target.reshape({-1}));
}

std::pair<double, double> accuracy(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor best = score_rows(output, target).argmax(-1);
  return {static_cast<double>(best.eq(target.reshape({-1})).sum().item<int64_t>()),
          static_cast<double>(target.numel())};
}

// A model's [samples, 1] fits targets [samples]; nothing else is bent, and nothing is broadcast.
torch::Tensor values_like(const torch::Tensor& output, const torch::Tensor& target) {
  TORCH_CHECK(output.numel() == target.numel() && output.size(0) == target.size(0),
              "mse needs as many outputs as targets: the model gives ", output.sizes(),
              " for targets ", target.sizes());
  return output.reshape(target.sizes()).to(torch::kFloat32);
}

torch::Tensor mse(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(values_like(output, target), target);
}

std::pair<double, double> absolute_error(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor error = (values_like(output, target) - target).abs();
  return {error.sum(torch::kFloat64).item<double>(), static_cast<double>(target.numel())};
}

}  // namespace

void add_cross_entropy(Registry& registry) {
  registry.add_loss("cross_entropy", cross_entropy, {{"accuracy", true, accuracy}},
                    Loss::Target::kClasses);
}

void add_mse(Registry& registry) {
  registry.add_loss("mse", mse, {{"absolute_error", false, absolute_error}}, Loss::Target::kValues);
}

}  // namespace muster::model
