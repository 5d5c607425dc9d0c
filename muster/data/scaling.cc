#include "muster/data/scaling.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::data {
namespace {

void put_bytes(const PixelValues::Table& value, std::span<const uint8_t> from, float* to) {
  // Eight bytes are loaded at once, which saves a quarter of the time. Gather instructions are no
  // faster on many processors, and far slower on those whose microcode had to be mended.
  size_t i = 0;
  for (; i + 8 <= from.size(); i += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, from.data() + i, sizeof(bytes));
    for (size_t k = 0; k < 8; ++k) {
      to[i + k] = value[bytes & 255U];
      bytes >>= 8U;
    }
  }
  for (; i < from.size(); ++i) to[i] = value[from[i]];
}

}  // namespace

Result<Scaling> Scaling::make(const config::SourceOptions& options) {
  if (options.mean.empty() ||
      !std::ranges::all_of(options.mean, [](double mean) { return std::isfinite(mean); })) {
    return Error(ErrorKind::kJob, "`mean` must be a finite number, or a list of them");
  }
  if (options.deviation.empty() || !std::ranges::all_of(options.deviation, [](double deviation) {
        return std::isfinite(deviation) && deviation > 0;
      })) {
    return Error(ErrorKind::kJob, "`deviation` must be a finite number above 0, or a list of them");
  }
  Scaling scaling;
  scaling.mean_ = options.mean;
  scaling.deviation_ = options.deviation;
  const size_t channels = std::max(scaling.mean_.size(), scaling.deviation_.size());
  for (auto* numbers : {&scaling.mean_, &scaling.deviation_}) {
    if (numbers->size() == 1) numbers->resize(channels, numbers->front());
    if (numbers->size() != channels) {
      return Error(ErrorKind::kJob,
                   "`mean` has {} numbers and `deviation` {}: give one number for all inputs, or "
                   "one for each channel or column in both",
                   options.mean.size(), options.deviation.size());
    }
  }
  return scaling;
}

std::vector<float> Scaling::zeros() const {
  std::vector<float> zeros;
  for (size_t i = 0; i < channels(); ++i) zeros.push_back((*this)(0, i));
  return zeros;
}

Status Scaling::check_shape(std::span<const int64_t> input_shape) const {
  if (channels() == 1) return {};
  if (!input_shape.empty() && input_shape[0] == static_cast<int64_t>(channels())) return {};
  return Error(ErrorKind::kJob,
               "`mean` or `deviation` has {} numbers, one for each channel or column, but the "
               "input has the shape {{{}}}: give {} of them, or one for all",
               channels(), fmt::join(input_shape, ", "), input_shape.empty() ? 1 : input_shape[0]);
}

void Scaling::add_to(Hasher& hasher) const {
  hasher.add(mean_.data(), mean_.size() * sizeof(double));
  hasher.add(deviation_.data(), deviation_.size() * sizeof(double));
}

Result<PixelValues> PixelValues::make(const Scaling& scaling) {
  PixelValues values;
  values.tables_.resize(scaling.channels());
  for (size_t channel = 0; channel < scaling.channels(); ++channel) {
    Table& table = values.tables_[channel];
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = scaling(static_cast<double>(i) / 255.0, channel);
      if (!std::isfinite(table[i])) {
        return Error(ErrorKind::kJob, "`deviation: {}` makes pixels too large for float32",
                     scaling.deviation(channel));
      }
    }
  }
  return values;
}

void PixelValues::put(std::span<const uint8_t> planes, size_t channels, float* to) const {
  if (tables_.size() == 1) return put_bytes(tables_[0], planes, to);
  const size_t area = planes.size() / channels;
  for (size_t i = 0; i < channels; ++i) {
    put_bytes(of(i), planes.subspan(i * area, area), to + i * area);
  }
}

void PixelValues::add_to(Hasher& hasher) const {
  for (const Table& table : tables_) hasher.add(table.data(), sizeof(table));
}

}  // namespace muster::data
