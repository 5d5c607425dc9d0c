#include "muster/model/click_parts.h"

#include <utility>

namespace muster::model {
namespace {

constexpr double kNumberUnit = 0x1p-16;  // of a record's numbers: data/schema.h

}  // namespace

ClickShape record_shape(const data::Schema& schema, const LaneContext& lane) {
  return {.numbers = schema.numbers,
          .features = schema.id_columns(),
          .width = lane.rows != nullptr ? lane.rows->width() : 0,
          .bags = schema.ids_are_a_bag,
          .values = schema.has_values};
}

Result<ClickShape> click_shape(std::string_view model, const data::Schema& schema,
                               const LaneContext& lane, int64_t least_width) {
  const ClickShape shape = record_shape(schema, lane);
  if (shape.features < 1) {
    return Error(ErrorKind::kJob,
                 "model {} needs records with ids, but the data has none; use data of format ctr "
                 "or libsvm",
                 model);
  }
  if (schema.classes != 2 || !schema.target_shape.empty()) {
    return Error(ErrorKind::kJob,
                 "model {} needs one target of two classes (clicked or not), but the data has {}",
                 model, schema.classes > 0 ? fmt::format("{} classes", schema.classes) : "values");
  }
  if (lane.rows == nullptr) {
    return Error(ErrorKind::kJob, "model {} needs rows: set tables.width, for example to 16",
                 model);
  }
  if (shape.width < least_width) {
    return Error(ErrorKind::kJob, "model {} needs tables.width to be at least {}, not {}", model,
                 least_width, shape.width);
  }
  return shape;
}

ClickInput split_input(const torch::Tensor& input, const ClickShape& shape) {
  ClickInput record{
      .numbers = input.narrow(1, 0, shape.numbers).to(torch::kFloat32).mul(kNumberUnit),
      .ids = input.narrow(1, shape.numbers, shape.features)};
  if (shape.values) {
    record.values = input.narrow(1, shape.numbers + shape.features, shape.features)
                        .view(torch::kFloat64)  // the bits that they are: data::value_bits
                        .to(torch::kFloat32);
  }
  return record;
}

torch::Tensor look_up(RowLookup& rows, const ClickInput& record) {
  const torch::Tensor vectors = rows(record.ids);
  return record.values ? vectors.mul(record.values->unsqueeze(2)) : vectors;
}

torch::Tensor click_scores(const torch::Tensor& logits) {
  return torch::stack({torch::zeros_like(logits), logits}, 1);
}

Result<std::vector<int64_t>> get_widths(config::ArgReader& args, std::string_view key,
                                        std::vector<int64_t> fallback) {
  const config::Node* node = args.get(key);
  if (node == nullptr) return fallback;
  MUSTER_TRY(auto widths, node->as_ints(key));
  for (const int64_t width : widths) {
    if (width < 1) return node->error("{} must hold widths of at least 1, not {}", key, width);
  }
  return widths;
}

DenseStack::DenseStack(const DenseOptions& options) : relu_at_end_(options.relu_at_end) {
  std::vector<int64_t> widths = options.hidden;
  widths.push_back(options.out);
  int64_t in = options.in;
  for (const int64_t out : widths) {
    layers_.push_back(
        register_module(fmt::format("fc{}", layers_.size() + 1),
                        std::make_shared<Linear>(LinearOptions{.in = in, .out = out})));
    in = out;
  }
}

torch::Tensor DenseStack::forward(const torch::Tensor& input) {
  torch::Tensor x = input;
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = (*layers_[i])(x);
    if (relu_at_end_ || i + 1 < layers_.size()) x = torch::relu(x);
  }
  return x;
}

}  // namespace muster::model
