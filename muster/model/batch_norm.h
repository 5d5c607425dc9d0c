// Batch normalisation that leaves its running statistics to the trainer.
#pragma once

#include "muster/model/init.h"
#include "muster/model/net.h"

namespace muster::model {

struct BatchNormOptions {
  int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;
};

// For inputs [samples, channels] and [samples, channels, ...]. In training, normalises with the
// statistics of the lane's own samples and leaves them (mean and unbiased variance) in `latest`; in
// evaluation, normalises with the running ones. Parameters and buffers are named as PyTorch's:
// weight, bias, running_mean, running_var. Called twice within one step, it keeps the statistics of
// the second call.
class BatchNorm : public Layer, public HasInit, public KeepsStatistics {
 public:
  explicit BatchNorm(const BatchNormOptions& options);
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;
  std::vector<Statistic> statistics() override;

 private:
  BatchNormOptions options_;
  torch::Tensor weight_;
  torch::Tensor bias_;
  torch::Tensor running_mean_;
  torch::Tensor running_var_;
  torch::Tensor latest_mean_;
  torch::Tensor latest_var_;
};

}  // namespace muster::model
