// DeepFM (Guo et al. 2017, arXiv 1703.04247).
//
// The row of an id is its first-order weight w and its factors v, both multiplied by the id's
// value, if the data has values. With x the numbers,
//   logit = sum of w_i + sum over pairs of v_i . v_j + deep(all v_i, x)
// where the sum over pairs is computed as 0.5 * ((sum of v_i)^2 - sum of v_i^2), added up over the
// factors.
#include "muster/model/click_parts.h"
#include "muster/model/row_lookup.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

class DeepFm : public Net {
 public:
  DeepFm(const ClickShape& shape, const std::vector<int64_t>& hidden,
         const std::shared_ptr<LaneContext>& lane)
      : shape_(shape),
        factors_(shape.width - 1),
        rows_(register_module("rows", std::make_shared<RowLookup>(lane, shape.bags))),
        deep_(register_module(
            "deep",
            std::make_shared<DenseStack>(DenseOptions{
                .in = shape.features * factors_ + shape.numbers, .hidden = hidden, .out = 1}))) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    const ClickInput record = split_input(input, shape_);
    const torch::Tensor rows = look_up(*rows_, record);
    const torch::Tensor first_order = rows.select(2, 0).sum(1);
    const torch::Tensor factors = rows.narrow(2, 1, factors_);
    const torch::Tensor pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1).mul(0.5);
    const torch::Tensor deep =
        (*deep_)(torch::cat({factors.flatten(1), record.numbers}, 1)).squeeze(1);
    return click_scores(first_order + pairs + deep);
  }

 private:
  ClickShape shape_;
  int64_t factors_;
  std::shared_ptr<RowLookup> rows_;
  std::shared_ptr<DenseStack> deep_;
};

}  // namespace

Result<std::shared_ptr<Net>> make_deepfm(const config::Node& args, const data::Schema& schema,
                                         const std::shared_ptr<LaneContext>& lane) {
  MUSTER_TRY(const ClickShape shape, click_shape("deepfm", schema, *lane, /*least_width=*/2));
  config::ArgReader reader(args, "the deepfm model");
  MUSTER_TRY(const auto hidden, get_widths(reader, "hidden", {64, 32}));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  return std::shared_ptr<Net>(std::make_shared<DeepFm>(shape, hidden, lane));
}

}  // namespace muster::model
