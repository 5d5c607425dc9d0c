// DLRM (Naumov et al. 2019, arXiv 1906.00091).
//
// A sample's vectors are the rows v_1 ... v_n of its ids and, if it has numbers, v_0 = the bottom
// layers' output for them. Scores: top(v_0, all v_i . v_j with i > j).
#include "muster/model/click_parts.h"
#include "muster/model/row_lookup.h"
#include "muster/model/zoo.h"

namespace muster::model {
namespace {

// Where the pairs i > j are in a flat n x n matrix.
torch::Tensor lower_triangle(int64_t n) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) places.push_back(i * n + j);
  }
  return torch::tensor(places, torch::kInt64);
}

class Dlrm : public Net {
 public:
  Dlrm(const ClickShape& shape, const std::vector<int64_t>& bottom, const std::vector<int64_t>& top,
       const std::shared_ptr<LaneContext>& lane)
      : shape_(shape),
        pairs_(lower_triangle(shape.features + (shape.numbers > 0 ? 1 : 0))),
        rows_(register_module("rows", std::make_shared<RowLookup>(lane, shape.bags))) {
    int64_t inputs = pairs_.numel();
    if (shape.numbers > 0) {
      bottom_ = register_module(
          "bottom",
          std::make_shared<DenseStack>(DenseOptions{
              .in = shape.numbers, .hidden = bottom, .out = shape.width, .relu_at_end = true}));
      inputs += shape.width;
    }
    top_ = register_module(
        "top", std::make_shared<DenseStack>(DenseOptions{.in = inputs, .hidden = top, .out = 2}));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    const ClickInput record = split_input(input, shape_);
    const torch::Tensor vectors = look_up(*rows_, record);
    if (bottom_ == nullptr) return (*top_)(products(vectors));
    const torch::Tensor dense = (*bottom_)(record.numbers);
    const torch::Tensor all = torch::cat({dense.unsqueeze(1), vectors}, 1);
    return (*top_)(torch::cat({dense, products(all)}, 1));
  }

 private:
  // [samples, n, width] to [samples, pairs]. No pair is selected twice, so backward adds nothing up
  // whose order could matter.
  torch::Tensor products(const torch::Tensor& vectors) const {
    return vectors.bmm(vectors.transpose(1, 2)).flatten(1).index_select(1, pairs_);
  }

  ClickShape shape_;
  torch::Tensor pairs_;  // a constant, so no buffer
  std::shared_ptr<RowLookup> rows_;
  std::shared_ptr<DenseStack> bottom_;  // null without numbers
  std::shared_ptr<DenseStack> top_;
};

}  // namespace

Result<std::shared_ptr<Net>> make_dlrm(const config::Node& args, const data::Schema& schema,
                                       const std::shared_ptr<LaneContext>& lane) {
  MUSTER_TRY(const ClickShape shape, click_shape("dlrm", schema, *lane));
  config::ArgReader reader(args, "the dlrm model");
  MUSTER_TRY(const auto bottom, get_widths(reader, "bottom", {64}));
  MUSTER_TRY(const auto top, get_widths(reader, "top", {64, 32}));
  MUSTER_RETURN_IF_ERROR(reader.finish());
  if (shape.features + shape.numbers < 2) {
    return Error(ErrorKind::kJob,
                 "model dlrm needs two ids, or an id and a number, in each record, but the data "
                 "has one id; use wide-deep");
  }
  return std::shared_ptr<Net>(std::make_shared<Dlrm>(shape, bottom, top, lane));
}

}  // namespace muster::model
