#include "muster/model/batch_norm.h"

namespace muster::model {

BatchNorm::BatchNorm(const BatchNormOptions& options)
    : options_(options),
      weight_(register_parameter("weight", torch::empty({options.channels}))),
      bias_(register_parameter("bias", torch::empty({options.channels}))),
      running_mean_(register_buffer("running_mean", torch::zeros({options.channels}))),
      running_var_(register_buffer("running_var", torch::ones({options.channels}))),
      latest_mean_(torch::zeros({options.channels})),
      latest_var_(torch::ones({options.channels})) {}

torch::Tensor BatchNorm::forward(const torch::Tensor& input) {
  constexpr bool kCudnn = false;  // its sums are not the same in every run
  if (!is_training()) {
    return at::batch_norm(input, weight_, bias_, running_mean_, running_var_, /*training=*/false,
                          options_.momentum, options_.eps, kCudnn);
  }
  TORCH_CHECK(input.numel() > options_.channels,
              "batch normalisation in training needs more than one value per channel in each lane");
  // With momentum 1 torch writes the statistics of this batch itself, unbiased, where it would else
  // keep the running ones: (1 - 1) * old + 1 * new. `old` must be finite for that, hence the zeros.
  // The aliases have version counters of their own, so that a second forward before backward is no
  // change of what the first one saved (which backward does not read in training).
  latest_mean_.zero_();
  latest_var_.zero_();
  return at::batch_norm(input, weight_, bias_, latest_mean_.variable_data(),
                        latest_var_.variable_data(), /*training=*/true, /*momentum=*/1.0,
                        options_.eps, kCudnn);
}

std::vector<std::pair<std::string, Init>> BatchNorm::initial_values() const {
  return {{"weight", Init::constant(1)}, {"bias", Init::constant(0)}};
}

std::vector<Statistic> BatchNorm::statistics() {
  return {{"running_mean", running_mean_, latest_mean_, options_.momentum},
          {"running_var", running_var_, latest_var_, options_.momentum}};
}

}  // namespace muster::model
