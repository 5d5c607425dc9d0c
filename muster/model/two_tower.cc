// Two towers, as for retrieval (Yi et al. 2019, "Sampling-bias-corrected neural modeling for large
// corpus item recommendations", RecSys).
//
// The first features (the user's) and the numbers go into the left tower, the other features (the
// item's) into the right one; logit = left . right / sqrt(out). Either output can be computed
// without the other, and stored.
#include <cmath>

#include "muster/model/args.h"
#include "muster/model/click_parts.h"
#include "muster/model/row_lookup.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

struct TowerOptions {
  int64_t left = 0;  // features of the left tower
  std::vector<int64_t> hidden;
  int64_t out = 0;
};

class TwoTower : public Net {
 public:
  TwoTower(const ClickShape& shape, const TowerOptions& options,
           const std::shared_ptr<LaneContext>& lane)
      : shape_(shape),
        left_features_(options.left),
        right_features_(shape.features - options.left),
        scale_(1 / std::sqrt(static_cast<double>(options.out))),
        rows_(register_module("rows", std::make_shared<RowLookup>(lane, shape.bags))) {
    const auto tower = [&](int64_t inputs) {
      return std::make_shared<DenseStack>(
          DenseOptions{.in = inputs, .hidden = options.hidden, .out = options.out});
    };
    left_ = register_module("left", tower(left_features_ * shape.width + shape.numbers));
    right_ = register_module("right", tower(right_features_ * shape.width));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const ClickInput record = split_input(input, shape_);
    const torch::Tensor rows = look_up(*rows_, record);
    const torch::Tensor left =
        (*left_)(torch::cat({rows.narrow(1, 0, left_features_).flatten(1), record.numbers}, 1));
    const torch::Tensor right =
        (*right_)(rows.narrow(1, left_features_, right_features_).flatten(1));
    return click_scores(left.mul(right).sum(1).mul(scale_));
  }

 private:
  ClickShape shape_;
  int64_t left_features_;
  int64_t right_features_;
  double scale_;
  std::shared_ptr<RowLookup> rows_;
  std::shared_ptr<DenseStack> left_;
  std::shared_ptr<DenseStack> right_;
};

}  // namespace

Result<std::shared_ptr<Net>> make_two_tower(const config::Node& args, const data::Schema& schema,
                                            const std::shared_ptr<LaneContext>& lane) {
  MUSTER_TRY(const ClickShape shape, click_shape("two-tower", schema, *lane));
  config::ArgReader reader(args, "the two-tower model");
  TowerOptions options;
  MUSTER_TRY(options.left, get_count(reader, "left", shape.features / 2, /*least=*/0));
  MUSTER_TRY(options.hidden, get_widths(reader, "hidden", {64}));
  MUSTER_TRY(options.out, get_count(reader, "out", 32));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  if (options.left >= shape.features || options.left + shape.numbers == 0) {
    return args.error(
        "left {} of the two-tower model leaves a tower without input; the data's records have {} "
        "numbers, which go to the left, and {} ids",
        options.left, shape.numbers, shape.features);
  }
  return std::shared_ptr<Net>(std::make_shared<TwoTower>(shape, options, lane));
}

}  // namespace muster::model
