#include "muster/model/embedding_bag.h"

#include "muster/base/check.h"

namespace muster::model {

EmbeddingBag::EmbeddingBag(const ClickShape& shape, bool mean,
                           const std::shared_ptr<const LaneContext>& lane)
    : shape_(shape),
      mean_(mean),
      rows_(register_module("rows", std::make_shared<RowLookup>(lane, shape.bags))) {
  MUSTER_CHECK(!mean || !shape.values, "a mean is of rows without values");
}

torch::Tensor EmbeddingBag::forward(const torch::Tensor& records) {
  const ClickInput record = split_input(records, shape_);
  torch::Tensor bags = rows_->sum(record.ids, record.values);
  if (mean_) {
    const torch::Tensor counts = record.ids.ge(0).sum(1, /*keepdim=*/true).clamp_min(1);
    bags = bags.div(counts.to(torch::kFloat32));
  }
  return shape_.numbers > 0 ? torch::cat({bags, record.numbers}, 1) : bags;
}

}  // namespace muster::model
