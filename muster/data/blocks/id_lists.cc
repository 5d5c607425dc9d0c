#include "muster/data/blocks/id_lists.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "muster/data/blocks/record.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

// Fields are read as doubles, which hold every whole number below this.
constexpr double kMostId = 0x1p53;

Status check_numbers(const std::string& name, const Value& value) {
  if (value.kind == Value::Kind::kNumbers) return {};
  return Error(ErrorKind::kData, "'{}' has bytes instead of numbers", name);
}

}  // namespace

Result<std::optional<IdLists>> IdLists::make(const config::SourceOptions& options,
                                             config::ArgReader& args) {
  const config::Node* node = args.get("ids");
  if (node == nullptr) return std::optional<IdLists>();
  IdLists lists;
  MUSTER_TRY(lists.ids_, node->as_string("ids"));
  MUSTER_TRY(lists.values_, args.get_string("values", ""));
  if (lists.values_ == lists.ids_) return node->error("ids and values must be two fields");
  MUSTER_TRY(lists.features_, get_whole(args, "features", 0, 1, kMostIds));
  if (lists.features_ == 0) return node->error("ids need `features`, the most that a record has");
  if (args.get("input") != nullptr) return node->error("ids and input cannot both be given");
  if (options.mean != std::vector{0.0} || options.deviation != std::vector{1.0}) {
    return node->error("ids and their values are not scaled: remove `mean` and `deviation`");
  }
  return std::optional<IdLists>(std::move(lists));
}

std::vector<std::string> IdLists::names() const {
  if (values_.empty()) return {ids_};
  return {ids_, values_};
}

void IdLists::describe(Schema& schema) const {
  schema.input = DType::kInt64;
  schema.input_shape = {values_.empty() ? features_ : 2 * features_};
  schema.has_ids = true;
  schema.ids_are_a_bag = true;
  schema.has_values = !values_.empty();
  schema.padding = {0};
}

Status IdLists::read(std::span<const Value> fields, std::byte* input) const {
  MUSTER_RETURN_IF_ERROR(check_numbers(ids_, fields[0]));
  const std::span<const double> ids = fields[0].numbers;
  const auto columns = static_cast<size_t>(features_);
  if (ids.size() > columns) {
    return Error(ErrorKind::kData,
                 "'{}' has {} ids, but `features` is {}; set it to the most that a record has",
                 ids_, ids.size(), features_);
  }
  auto* to = reinterpret_cast<int64_t*>(input);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!(ids[i] >= 0 && ids[i] < kMostId) || ids[i] != std::floor(ids[i])) {
      return Error(ErrorKind::kData,
                   "'{}' has {}, which is not an id, a whole number from 0 to 2^53 - 1", ids_,
                   ids[i]);
    }
    to[i] = static_cast<int64_t>(ids[i]);
  }
  std::fill(to + ids.size(), to + columns, -1);
  if (values_.empty()) return {};
  MUSTER_RETURN_IF_ERROR(check_numbers(values_, fields[1]));
  const std::span<const double> values = fields[1].numbers;
  if (values.size() != ids.size()) {
    return Error(ErrorKind::kData, "'{}' has {} values, but '{}' has {} ids; each needs one",
                 values_, values.size(), ids_, ids.size());
  }
  std::vector<float> found;
  found.reserve(values.size());
  for (const double value : values) {
    const auto number = id_value(value);
    if (!number) {
      return Error(ErrorKind::kData,
                   "'{}' has the value {}, which is not finite or does not fit float32", values_,
                   value);
    }
    found.push_back(*number);
  }
  put_values(found, {to + columns, columns});
  return {};
}

}  // namespace muster::data
