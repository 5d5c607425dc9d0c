// Bags of rows for lists of layers: what torch's EmbeddingBag computes, with rows of a table
// (rows.h) in the place of a weight.
#pragma once

#include <memory>

#include "muster/model/click_parts.h"
#include "muster/model/net.h"

namespace muster::model {

// Has no parameters. The first layer of a net, which has no other lookup.
class EmbeddingBag : public Layer {
 public:
  // The lane must have rows. The mean is for records without values: torch has no other either.
  EmbeddingBag(const ClickShape& shape, bool mean, const std::shared_ptr<const LaneContext>& lane);

  // Records (data/schema.h) to [samples, width + numbers]: the sum of the rows of a sample's ids,
  // each multiplied by the value of its id, or their mean; then the sample's numbers. A sample
  // without ids has zeros in place of a sum, and of a mean.
  torch::Tensor forward(const torch::Tensor& records) override;

 private:
  const ClickShape shape_;
  const bool mean_;
  std::shared_ptr<RowLookup> rows_;
};

}  // namespace muster::model
