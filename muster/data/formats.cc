#include "muster/data/formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/order.h"

namespace muster::data {

Result<Slice> select_samples(const config::SourceOptions& options, uint64_t size,
                             std::string_view file) {
  const auto& part = options.part;
  if (part.size() != 2 || !(part[0] >= 0 && part[0] < part[1] && part[1] <= 1)) {
    return Error(ErrorKind::kJob,
                 "`part` must be two fractions such as [0, 0.9], the first below the second");
  }
  if (options.limit < 0) return Error(ErrorKind::kJob, "`limit` must not be negative");
  if (size == 0) {
    return Error(ErrorKind::kData, "'{}' holds nothing; use a file that has samples", file);
  }
  const auto cut = [&](double fraction) {
    // The end must be exact whatever the rounding: 1.0 is all of it.
    if (fraction >= 1) return size;
    return std::min(size, static_cast<uint64_t>(fraction * static_cast<double>(size)));
  };
  Slice chosen{cut(part[0]), 0};
  chosen.count = cut(part[1]) - chosen.first;
  if (options.limit > 0) {
    chosen.count = std::min(chosen.count, static_cast<uint64_t>(options.limit));
  }
  if (chosen.count == 0) {
    return Error(ErrorKind::kData,
                 "the part [{}, {}] of '{}' holds none of its {} samples; choose a larger part",
                 part[0], part[1], file, with_commas(size));
  }
  if (chosen.count > Order::kMaxSize) {
    return Error(ErrorKind::kData, "'{}' has more than 2^40 samples; set `limit`", file);
  }
  return chosen;
}

void put_no_label(bool has_classes, std::byte* target) {
  if (has_classes) {
    constexpr int64_t kNone = -1;
    std::memcpy(target, &kNone, sizeof(kNone));
  } else {
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(target, &kNone, sizeof(kNone));
  }
}

std::optional<float> id_value(double value) {
  using Limits = std::numeric_limits<float>;
  if (std::abs(value) < double{Limits::min()}) return 0.0F;
  if (!(std::abs(value) <= double{Limits::max()})) return std::nullopt;  // also if it is NaN
  return static_cast<float>(value);
}

void put_values(std::span<const float> values, std::span<int64_t> columns) {
  MUSTER_CHECK(values.size() <= columns.size(), "a sample has a column for each value");
  const auto rest = std::ranges::transform(values, columns.begin(), value_bits).out;
  std::fill(rest, columns.end(), value_bits(0));
}

Result<int64_t> get_whole(config::ArgReader& args, std::string_view key, int64_t fallback,
                          int64_t least, int64_t most) {
  const config::Node* node = args.get(key);
  if (node == nullptr) return fallback;
  MUSTER_TRY(const int64_t value, node->as_int(key));
  if (value >= least && value <= most) return value;
  return node->error("{} must be from {} to {}, not {}", key, least, most, value);
}

Result<double> get_between(config::ArgReader& args, std::string_view key, double fallback,
                           double least, double most) {
  const config::Node* node = args.get(key);
  if (node == nullptr) return fallback;
  MUSTER_TRY(const double value, node->as_number(key));
  if (value >= least && value <= most) return value;
  return node->error("{} must be from {} to {}, not {}", key, least, most, value);
}

}  // namespace muster::data
