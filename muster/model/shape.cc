#include "muster/model/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace muster::model {

int64_t output_features(const data::Schema& schema) {
  if (schema.classes > 0) return schema.classes;
  return static_cast<int64_t>(std::max<size_t>(schema.target_elements(), 1));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a single number" : fmt::format("{}", fmt::join(shape, "x"));
}

Status need_images(std::string_view model, const data::Schema& schema) {
  if (schema.input == data::DType::kFloat32 && schema.input_shape.size() == 3) return {};
  return Error(ErrorKind::kJob,
               "model {} needs images (channels x height x width), but the data's samples are {}{}",
               model, schema.input == data::DType::kInt64 ? "tokens, " : "",
               shape_text(schema.input_shape));
}

}  // namespace muster::model
