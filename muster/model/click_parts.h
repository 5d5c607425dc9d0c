// What the click models of the zoo (dlrm, deepfm, wide-deep, two-tower) have in common: they read
// records of numbers and ids, look up a row for each id, multiply it by the id's value, if the data
// has values, and give two class scores, "not clicked" and "clicked".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "muster/config/node.h"
#include "muster/data/schema.h"
#include "muster/model/layers.h"
#include "muster/model/net.h"
#include "muster/model/row_lookup.h"

namespace muster::model {

struct ClickShape {
  int64_t numbers = 0;   // real numbers of a sample; may be 0
  int64_t features = 0;  // ids of a sample
  int64_t width = 0;     // floats of a row
  bool bags = false;     // an id means the same in every column (data::Schema)
  bool values = false;   // each id has one (data::Schema)
};

// What the data and the lane say; 0 for what is missing.
ClickShape record_shape(const data::Schema& schema, const LaneContext& lane);

// Fails, in the name of the model, if the data is not made of records with ids and two classes, or
// if the job has no rows of at least `least_width` floats.
Result<ClickShape> click_shape(std::string_view model, const data::Schema& schema,
                               const LaneContext& lane, int64_t least_width = 1);

struct ClickInput {
  torch::Tensor numbers;  // float32 [samples, numbers]
  torch::Tensor ids;      // int64 [samples, features]
  // Of the ids, float32 [samples, features]; nothing: all are 1.
  std::optional<torch::Tensor> values = std::nullopt;
};

// An input as schema.h describes it, cut into its parts.
ClickInput split_input(const torch::Tensor& input, const ClickShape& shape);

// The rows of all ids, each multiplied by the value of its id: [samples, features, width].
torch::Tensor look_up(RowLookup& rows, const ClickInput& record);

// The scores [samples, 2] whose softmax is the sigmoid of the logits [samples]: 0, and the logit.
torch::Tensor click_scores(const torch::Tensor& logits);

// The list of layer widths under `key`; may be empty.
Result<std::vector<int64_t>> get_widths(config::ArgReader& args, std::string_view key,
                                        std::vector<int64_t> fallback);

struct DenseOptions {
  int64_t in = 0;
  std::vector<int64_t> hidden;
  int64_t out = 0;
  bool relu_at_end = false;
};

// Linear layers with relu between. Names: fc1, fc2, ...
class DenseStack : public Layer {
 public:
  explicit DenseStack(const DenseOptions& options);
  torch::Tensor forward(const torch::Tensor& input) override;

 private:
  bool relu_at_end_;
  std::vector<std::shared_ptr<Linear>> layers_;
};

}  // namespace muster::model
