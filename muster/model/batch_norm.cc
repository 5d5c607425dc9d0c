#include "muster/model/batch_norm.h"

#include <utility>

namespace muster::model {

BatchStatistics::BatchStatistics(torch::Tensor mean, torch::Tensor variance, double eps,
                                 double momentum)
    : eps_(eps),
      momentum_(momentum),
      running_mean_(std::move(mean)),
      running_var_(std::move(variance)),
      latest_mean_(torch::zeros_like(running_mean_)),
      latest_var_(torch::ones_like(running_var_)) {}

torch::Tensor BatchStatistics::normalise(const torch::Tensor& input, const torch::Tensor& weight,
                                         const torch::Tensor& bias, bool training) const {
  constexpr bool kCudnn = false;  // its sums are not the same in every run
  if (!training) {
    return at::batch_norm(input, weight, bias, running_mean_, running_var_, /*training=*/false,
                          momentum_, eps_, kCudnn);
  }
  TORCH_CHECK(input.numel() > running_mean_.numel(),
              "batch normalisation in training needs more than one value per channel in each lane");
  // With momentum 1 torch writes the statistics of this batch itself, unbiased, where it would else
  // keep the running ones: (1 - 1) * old + 1 * new. `old` must be finite for that, hence the zeros.
  // The aliases have version counters of their own, so that a second forward before backward is no
  // change of what the first one saved (which backward does not read in training).
  latest_mean_.zero_();
  latest_var_.zero_();
  return at::batch_norm(input, weight, bias, latest_mean_.variable_data(),
                        latest_var_.variable_data(), /*training=*/true, /*momentum=*/1.0, eps_,
                        kCudnn);
}

std::vector<Statistic> BatchStatistics::list(const std::string& mean,
                                             const std::string& variance) const {
  return {{mean, running_mean_, latest_mean_, momentum_},
          {variance, running_var_, latest_var_, momentum_}};
}

BatchNorm::BatchNorm(const BatchNormOptions& options)
    : weight_(register_parameter("weight", torch::empty({options.channels}))),
      bias_(register_parameter("bias", torch::empty({options.channels}))),
      statistics_{register_buffer("running_mean", torch::zeros({options.channels})),
                  register_buffer("running_var", torch::ones({options.channels})), options.eps,
                  options.momentum} {}

torch::Tensor BatchNorm::forward(const torch::Tensor& input) {
  return statistics_.normalise(input, weight_, bias_, is_training());
}

std::vector<std::pair<std::string, Init>> BatchNorm::initial_values() const {
  return {{"weight", Init::constant(1)}, {"bias", Init::constant(0)}};
}

std::vector<Statistic> BatchNorm::statistics() {
  return statistics_.list("running_mean", "running_var");
}

}  // namespace muster::model
