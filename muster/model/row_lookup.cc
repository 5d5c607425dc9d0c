#include "muster/model/row_lookup.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "muster/base/check.h"
#include "muster/base/sort_spread.h"

namespace muster::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kNone = -1;

// A step of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// OOPSLA 2014). One to one on 64 bits.
constexpr uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

// The rows that a batch needs.
struct Wanted {
  std::vector<uint64_t> keys;  // ascending, each once
  torch::Tensor places;        // for each id, sample by sample: its key's place in `keys`, or kNone
};

Wanted find_rows(const torch::Tensor& ids, bool bags) {
  const torch::Tensor flat = ids.contiguous();
  const auto* id = flat.const_data_ptr<int64_t>();
  std::vector<std::pair<uint64_t, int64_t>> uses;  // key, place of the id
  uses.reserve(static_cast<size_t>(flat.numel()));
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] >= 0) uses.emplace_back(row_key(bags ? 0 : i % flat.size(1), id[i]), i);
  }
  sort_spread(uses, [](const auto& use) { return use.first; });
  Wanted wanted{.keys = {}, .places = torch::full({flat.numel()}, kNone, torch::kInt64)};
  auto* place = wanted.places.data_ptr<int64_t>();
  for (const auto& [key, i] : uses) {
    if (wanted.keys.empty() || wanted.keys.back() != key) wanted.keys.push_back(key);
    place[i] = static_cast<int64_t>(wanted.keys.size()) - 1;
  }
  return wanted;
}

// The row of each place.
torch::Tensor spread(const torch::Tensor& rows, const torch::Tensor& places) {
  const int64_t width = rows.size(1);
  auto vectors = torch::zeros({places.numel(), width}, torch::kFloat32);
  const auto* from = rows.const_data_ptr<float>();
  const auto* place = places.const_data_ptr<int64_t>();
  auto* to = vectors.data_ptr<float>();
  for (int64_t i = 0; i < places.numel(); ++i, to += width) {
    if (place[i] != kNone) std::copy_n(from + place[i] * width, width, to);
  }
  return vectors;
}

// For each of `count` rows the sum of the gradients of its places. In the order of places and by
// one thread, so the bits depend on nothing else; torch promises no order.
torch::Tensor gather(const torch::Tensor& gradient, const torch::Tensor& places, int64_t count) {
  const torch::Tensor vectors = gradient.contiguous();
  const int64_t width = vectors.size(1);
  auto rows = torch::zeros({count, width}, torch::kFloat32);
  const auto* from = vectors.const_data_ptr<float>();
  const auto* place = places.const_data_ptr<int64_t>();
  auto* sums = rows.data_ptr<float>();
  for (int64_t i = 0; i < places.numel(); ++i, from += width) {
    if (place[i] == kNone) continue;
    float* sum = sums + place[i] * width;
    for (int64_t j = 0; j < width; ++j) sum[j] += from[j];
  }
  return rows;
}

class SpreadRows : public torch::autograd::Function<SpreadRows> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& rows,
                               const torch::Tensor& places) {
    context->save_for_backward({places});
    context->saved_data["count"] = rows.size(0);
    return spread(rows, places);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gather(gradients[0], saved[0], context->saved_data["count"].toInt()), torch::Tensor()};
  }
};

// For each sample the sum of the rows of its places [samples, features], times `values`.
torch::Tensor sum_up(const torch::Tensor& rows, const torch::Tensor& places,
                     const std::optional<torch::Tensor>& values) {
  const int64_t features = places.size(1);
  const int64_t width = rows.size(1);
  auto sums = torch::zeros({places.size(0), width}, torch::kFloat32);
  const auto* from = rows.const_data_ptr<float>();
  const auto* place = places.const_data_ptr<int64_t>();
  const auto* value = values ? values->const_data_ptr<float>() : nullptr;
  auto* sum = sums.data_ptr<float>();
  for (int64_t sample = 0; sample < places.size(0); ++sample, sum += width) {
    for (int64_t i = sample * features; i < (sample + 1) * features; ++i) {
      if (place[i] == kNone) continue;
      const float* row = from + place[i] * width;
      if (value == nullptr) {
        for (int64_t j = 0; j < width; ++j) sum[j] += row[j];
      } else {
        for (int64_t j = 0; j < width; ++j) sum[j] += value[i] * row[j];
      }
    }
  }
  return sums;
}

// For each of `count` rows the sum, over its places, of the gradient of that sample's sum, times
// `values`: what sum_up() needs in the backward pass.
torch::Tensor gather_sums(const torch::Tensor& gradient, const torch::Tensor& places,
                          const std::optional<torch::Tensor>& values, int64_t count) {
  const torch::Tensor sums = gradient.contiguous();
  const int64_t features = places.size(1);
  const int64_t width = sums.size(1);
  auto rows = torch::zeros({count, width}, torch::kFloat32);
  const auto* from = sums.const_data_ptr<float>();
  const auto* place = places.const_data_ptr<int64_t>();
  const auto* value = values ? values->const_data_ptr<float>() : nullptr;
  auto* first = rows.data_ptr<float>();
  for (int64_t sample = 0; sample < places.size(0); ++sample, from += width) {
    for (int64_t i = sample * features; i < (sample + 1) * features; ++i) {
      if (place[i] == kNone) continue;
      float* row = first + place[i] * width;
      if (value == nullptr) {
        for (int64_t j = 0; j < width; ++j) row[j] += from[j];
      } else {
        for (int64_t j = 0; j < width; ++j) row[j] += value[i] * from[j];
      }
    }
  }
  return rows;
}

class SumRows : public torch::autograd::Function<SumRows> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& rows,
                               const torch::Tensor& places,
                               const std::optional<torch::Tensor>& values) {
    tensor_list saved = {places};
    if (values) saved.push_back(*values);
    context->save_for_backward(std::move(saved));
    context->saved_data["count"] = rows.size(0);
    return sum_up(rows, places, values);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    std::optional<torch::Tensor> values;
    if (saved.size() > 1) values = saved[1];
    return {gather_sums(gradients[0], saved[0], values, context->saved_data["count"].toInt()),
            torch::Tensor(), torch::Tensor()};
  }
};

// What a lane's backward pass does with the gradient of its rows.
void hand_back(const torch::Tensor& gradient, const LaneContext& lane,
               std::span<const uint64_t> keys) {
  const torch::Tensor rows = gradient.contiguous();
  const auto* values = rows.const_data_ptr<float>();
  const auto size = static_cast<size_t>(rows.numel());
  const auto* const wrong =
      std::find_if(values, values + size, [](float value) { return !std::isfinite(value); });
  if (wrong != values + size) {
    const auto row = static_cast<size_t>(wrong - values) / static_cast<size_t>(rows.size(1));
    throw RowGradientNotFinite(fmt::format(
        "step {}, lane {}: the gradient of the table row with key {:#018x} is not finite; lower "
        "optimizer.lr and tables.lr, or look at the samples of this lane",
        lane.step, lane.lane, keys[row]));
  }
  lane.rows->add(lane.step, static_cast<int>(lane.lane), keys, values);
}

}  // namespace

uint64_t row_key(int64_t feature, int64_t id) {
  // The inner mix spreads features so far apart that ids, which are small or hashes themselves, do
  // not lead from one to another. For one feature the whole is one to one.
  return mix(mix(static_cast<uint64_t>(feature)) ^ static_cast<uint64_t>(id));
}

std::vector<uint64_t> row_keys(const data::Schema& schema, std::span<const int64_t> records) {
  std::vector<uint64_t> keys;
  const size_t record = schema.input_elements();
  const auto numbers = static_cast<size_t>(schema.numbers);
  const auto end = numbers + static_cast<size_t>(schema.id_columns());
  for (size_t first = 0; first + record <= records.size(); first += record) {
    for (size_t i = numbers; i < end; ++i) {
      const int64_t id = records[first + i];
      const auto feature = schema.ids_are_a_bag ? 0 : static_cast<int64_t>(i - numbers);
      if (id >= 0) keys.push_back(row_key(feature, id));
    }
  }
  sort_spread(keys);
  const auto repeated = std::ranges::unique(keys);
  keys.erase(repeated.begin(), repeated.end());
  return keys;
}

RowLookup::RowLookup(std::shared_ptr<const LaneContext> lane, bool bags)
    : lane_(std::move(lane)), bags_(bags) {
  MUSTER_CHECK(lane_ != nullptr && lane_->rows != nullptr, "a lookup needs a lane with rows");
}

RowLookup::Found RowLookup::find(const torch::Tensor& ids) {
  TORCH_CHECK(ids.dim() == 2 && ids.scalar_type() == torch::kInt64,
              "rows are looked up by ids [samples, features] of type int64, not ", ids.sizes(),
              " of type ", ids.scalar_type());
  Wanted wanted = find_rows(ids, bags_);
  const int64_t width = lane_->rows->width();
  const auto count = static_cast<int64_t>(wanted.keys.size());
  const torch::Tensor rows = torch::empty({count, width}, torch::kFloat32);
  const bool trains = is_training() && torch::GradMode::is_enabled();
  if (count > 0) {
    lane_->rows->read(lane_->step, trains ? static_cast<int>(lane_->lane) : RowSource::kNoLane,
                      wanted.keys, rows.data_ptr<float>());
    if (trains) {
      rows.requires_grad_();
      // By value: the lane may have moved on when backward is called.
      rows.register_hook([lane = *lane_, keys = std::move(wanted.keys)](
                             const torch::Tensor& gradient) { hand_back(gradient, lane, keys); });
    }
  }
  return {rows, wanted.places};
}

torch::Tensor RowLookup::forward(const torch::Tensor& ids) {
  const Found found = find(ids);
  return SpreadRows::apply(found.rows, found.places)
      .view({ids.size(0), ids.size(1), found.rows.size(1)});
}

torch::Tensor RowLookup::sum(const torch::Tensor& ids, const std::optional<torch::Tensor>& values) {
  TORCH_CHECK(
      !values || (values->sizes() == ids.sizes() && values->scalar_type() == torch::kFloat32),
      "ids have as many values, of type float32");
  const Found found = find(ids);
  std::optional<torch::Tensor> factors;
  if (values) factors = values->contiguous();
  return SumRows::apply(found.rows, found.places.view(ids.sizes()), factors);
}

}  // namespace muster::model
