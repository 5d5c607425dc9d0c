// Wide & Deep (Cheng et al. 2016, arXiv 1606.07792).
//
// The row of an id is its wide weight w and its vector v, both multiplied by the id's value, if the
// data has values. With x the numbers,
//   logit = sum of w_i + deep(all v_i, x)
#include "muster/model/click_parts.h"
#include "muster/model/row_lookup.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

class WideDeep : public Net {
 public:
  WideDeep(const ClickShape& shape, const std::vector<int64_t>& hidden,
           const std::shared_ptr<LaneContext>& lane)
      : shape_(shape),
        rows_(register_module("rows", std::make_shared<RowLookup>(lane, shape.bags))),
        deep_(register_module("deep", std::make_shared<DenseStack>(DenseOptions{
                                          .in = shape.features * (shape.width - 1) + shape.numbers,
                                          .hidden = hidden,
                                          .out = 1}))) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    const ClickInput record = split_input(input, shape_);
    const torch::Tensor rows = look_up(*rows_, record);
    const torch::Tensor wide = rows.select(2, 0).sum(1);
    const torch::Tensor vectors = rows.narrow(2, 1, rows.size(2) - 1).flatten(1);
    const torch::Tensor deep = (*deep_)(torch::cat({vectors, record.numbers}, 1)).squeeze(1);
    return click_scores(wide + deep);
  }

 private:
  ClickShape shape_;
  std::shared_ptr<RowLookup> rows_;
  std::shared_ptr<DenseStack> deep_;
};

}  // namespace

Result<std::shared_ptr<Net>> make_wide_deep(const config::Node& args, const data::Schema& schema,
                                            const std::shared_ptr<LaneContext>& lane) {
  MUSTER_TRY(const ClickShape shape, click_shape("wide-deep", schema, *lane, /*least_width=*/2));
  config::ArgReader reader(args, "the wide-deep model");
  MUSTER_TRY(const auto hidden, get_widths(reader, "hidden", {64, 32}));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  return std::shared_ptr<Net>(std::make_shared<WideDeep>(shape, hidden, lane));
}

}  // namespace muster::model
