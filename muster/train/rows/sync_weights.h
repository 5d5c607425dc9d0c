// Rows and weights of sync.strategy: server with sync.mode: sync: all of the model is in tables,
// and each step sees all updates of the step before.
//
//   read_weights    the model's own parameters as they are after so many steps
//   read, add       rows, by the nets
//   push            a lane's gradient of the model's own parameters
//   wait, commit    as of SyncRows: both are one step
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muster/config/job.h"
#include "muster/train/rows/sync_rows.h"
#include "muster/train/rows/weight_rows.h"

namespace muster::train {

class SyncWeights final : public SyncRows {
 public:
  SyncWeights(const config::Job& job, std::unique_ptr<Tables> tables);

  // The model's own parameters as they are when a job begins.
  void set_initial(std::function<std::span<const float>()> weights) {
    initial_ = std::move(weights);
  }

  // Whoever reads knows that all workers know of the commit of the last of these steps: if servers
  // do not, it tells them.
  Status read_weights(int64_t step, std::span<float> weights);
  // A lane's part of the gradient of a step. Any thread.
  Status push(int64_t step, int lane, std::span<const float> gradient, double lr);

  Status load(std::vector<std::string> shards, uint64_t era) override;

 private:
  WeightRows weights_;
  std::function<std::span<const float>()> initial_;
};

}  // namespace muster::train
