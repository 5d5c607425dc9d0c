// Batch normalisation that leaves its running statistics to the trainer.
#pragma once

#include <string>
#include <vector>

#include "muster/model/init.h"
#include "muster/model/net.h"

namespace muster::model {

struct BatchNormOptions {
  int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;
};

// The running statistics of one batch normalisation, and what is computed with them.
class BatchStatistics {
 public:
  // `mean` and `variance`: the running ones, of all channels.
  BatchStatistics(torch::Tensor mean, torch::Tensor variance, double eps, double momentum);

  // In training, normalises with the statistics of the lane's own samples and leaves them (mean and
  // unbiased variance) in `latest`; in evaluation, normalises with the running ones. `weight` and
  // `bias` may be undefined.
  torch::Tensor normalise(const torch::Tensor& input, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool training) const;
  // With these names.
  std::vector<Statistic> list(const std::string& mean, const std::string& variance) const;
  const torch::Tensor& running_mean() const { return running_mean_; }
  const torch::Tensor& running_var() const { return running_var_; }

 private:
  double eps_;
  double momentum_;
  torch::Tensor running_mean_;
  torch::Tensor running_var_;
  torch::Tensor latest_mean_;
  torch::Tensor latest_var_;
};

// For inputs [samples, channels] and [samples, channels, ...]. Parameters and buffers are named as
// PyTorch's: weight, bias, running_mean, running_var. Called twice within one step, it keeps the
// statistics of the second call.
class BatchNorm : public Layer, public HasInit, public KeepsStatistics {
 public:
  explicit BatchNorm(const BatchNormOptions& options);
  torch::Tensor forward(const torch::Tensor& input) override;
  std::vector<std::pair<std::string, Init>> initial_values() const override;
  std::vector<Statistic> statistics() override;

 private:
  torch::Tensor weight_;
  torch::Tensor bias_;
  BatchStatistics statistics_;
};

}  // namespace muster::model
