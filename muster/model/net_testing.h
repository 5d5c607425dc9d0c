// Schemas and nets for this folder's tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/config/node.h"
#include "muster/data/schema.h"
#include "muster/model/init.h"
#include "muster/model/registry.h"

namespace muster::model::testing {

inline data::Schema images(std::vector<int64_t> shape = {1, 28, 28}, int64_t classes = 10) {
  return {
      .input_shape = std::move(shape), .target_shape = {}, .classes = classes, .vocabulary = {}};
}

inline data::Schema text(int64_t length = 16, int64_t vocabulary = 65) {
  return {.input = data::DType::kInt64,
          .input_shape = {length},
          .target_shape = {length},
          .classes = vocabulary,
          .vocabulary = {}};
}

inline data::Schema values(int64_t features = 8) {
  return {.input_shape = {features},
          .target = data::DType::kFloat32,
          .target_shape = {},
          .classes = 0,
          .vocabulary = {}};
}

inline config::Node yaml(const std::string& text) {
  return config::parse_yaml(text, "job.yaml").value();
}

inline std::shared_ptr<LaneContext> lane(uint64_t seed = 7) {
  return std::make_shared<LaneContext>(LaneContext{.seed = seed});
}

inline config::ModelOptions zoo(const std::string& name, const std::string& args = "") {
  config::ModelOptions options;
  options.zoo = name;
  options.args = yaml(args);
  return options;
}

inline config::ModelOptions layers(const std::string& list,
                                   const std::string& loss = "cross_entropy") {
  config::ModelOptions options;
  options.layers = yaml(list);
  options.loss = loss;
  return options;
}

// A net of these options, its weights set.
inline std::shared_ptr<Net> make(const config::ModelOptions& options, const data::Schema& schema,
                                 const std::shared_ptr<LaneContext>& context = lane()) {
  auto net = build(Registry::builtin(), options, schema, context).value();
  initialise(*net, context->seed);
  return net;
}

// What build() says is wrong; "" if nothing is.
inline std::string complaint(const config::ModelOptions& options, const data::Schema& schema) {
  const auto net = build(Registry::builtin(), options, schema, lane());
  return net.ok() ? "" : net.error().message();
}

inline int64_t parameter_count(const Net& net) {
  int64_t count = 0;
  for (const auto& parameter : net.parameters()) count += parameter.numel();
  return count;
}

inline std::vector<std::string> parameter_names(const Net& net) {
  return net.named_parameters().keys();
}

// Samples of this schema, the same in every run.
inline torch::Tensor samples(const data::Schema& schema, int64_t count) {
  std::vector<int64_t> shape = {count};
  shape.insert(shape.end(), schema.input_shape.begin(), schema.input_shape.end());
  const auto elements = count * static_cast<int64_t>(schema.input_elements());
  const torch::Tensor numbers = torch::arange(elements).mul(7919).remainder(1009);
  if (schema.input == data::DType::kInt64) return numbers.remainder(schema.classes).view(shape);
  return numbers.to(torch::kFloat32).div(504).sub(1).view(shape);
}

inline torch::Tensor targets(const data::Schema& schema, int64_t count) {
  std::vector<int64_t> shape = {count};
  shape.insert(shape.end(), schema.target_shape.begin(), schema.target_shape.end());
  const auto elements = count * static_cast<int64_t>(schema.target_elements());
  const torch::Tensor numbers = torch::arange(elements).mul(31);
  if (schema.target == data::DType::kInt64) return numbers.remainder(schema.classes).view(shape);
  return numbers.to(torch::kFloat32).view(shape);
}

}  // namespace muster::model::testing
