// A layer that reads rows of an embedding table (rows.h) by the ids of a batch, and hands back
// their gradient.
//
// A net has one RowLookup and calls it once per pass (forward() or sum()), for all features
// together: so a lane and step cost one read() and one add(), and each row's gradient is complete
// when it is added. (A second add() of the same lane and step would have no effect.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "muster/data/schema.h"
#include "muster/model/net.h"

namespace muster::model {

// The key of the row that an id (0 or above) has in a feature (from 0). Ids of one feature never
// have the same key; ids of different features have with a probability of 2^-64. A pure function,
// and part of the format of a run: never change it.
uint64_t row_key(int64_t feature, int64_t id);

// The keys of all ids of a batch of records with ids (data/schema.h), ascending, each once: what a
// RowLookup of all features reads for it.
std::vector<uint64_t> row_keys(const data::Schema& schema, std::span<const int64_t> records);

// Thrown by a backward pass if the gradient of a row is not finite. Nothing was added then.
class RowGradientNotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Has no parameters. Registered as a module so that it knows whether the net is training.
class RowLookup : public Layer {
 public:
  // The lane must have rows. `bags`: all columns are one feature.
  explicit RowLookup(std::shared_ptr<const LaneContext> lane, bool bags = false);

  // Ids [samples, features] to vectors [samples, features, width], in float32. The vector of an id
  // below 0 ("none") is zero.
  //
  // Reads the rows of lane->step. In training, with gradients enabled, the backward
  // pass calls add() once, with the step and the lane of this call. If all ids are "none", or there
  // are no samples, neither read() nor add() is called.
  torch::Tensor forward(const torch::Tensor& ids) override;
  // For each sample the sum of the vectors of its ids, each multiplied by the value of its id: the
  // sum of torch's EmbeddingBag, whose per_sample_weights the values are. [samples, width]; without
  // the vectors in memory. values: float32 [samples, features]; nothing: all are 1. They get no
  // gradient. Reads and adds as forward() does. Added up in the order of the columns by one
  // thread, so the bits depend on nothing else.
  torch::Tensor sum(const torch::Tensor& ids, const std::optional<torch::Tensor>& values);

 private:
  struct Found {
    torch::Tensor rows;    // [keys, width]; hands back its gradient in training
    torch::Tensor places;  // for each id, sample by sample: its row's place, or -1
  };
  Found find(const torch::Tensor& ids);

  std::shared_ptr<const LaneContext> lane_;
  const bool bags_;
};

}  // namespace muster::model
