#include "muster/data/scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

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

// Products with less might be subnormal, which some threads take for 0.
constexpr double kLeastFactor = 1e-20;

struct TwoProducts {
  MUSTER_ALWAYS_INLINE void operator()(const uint8_t* __restrict from, size_t n, float high,
                                       float low, float* __restrict to) const {
    for (size_t i = 0; i < n; ++i) {
      const auto x = static_cast<float>(from[i]);
      to[i] = x * high + x * low;
    }
  }
};

struct ThreeInTurns {
  MUSTER_ALWAYS_INLINE void operator()(const uint8_t* __restrict from, size_t n, const float* high,
                                       const float* low, float* __restrict first,
                                       float* __restrict second, float* __restrict third) const {
    const float high0 = high[0];
    const float high1 = high[1];
    const float high2 = high[2];
    const float low0 = low[0];
    const float low1 = low[1];
    const float low2 = low[2];
    for (size_t i = 0; i < n; ++i) {
      const auto x = static_cast<float>(from[3 * i]);
      const auto y = static_cast<float>(from[3 * i + 1]);
      const auto z = static_cast<float>(from[3 * i + 2]);
      first[i] = x * high0 + x * low0;
      second[i] = y * high1 + y * low1;
      third[i] = z * high2 + z * low2;
    }
  }
};

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
  values.factors_.resize(scaling.channels());
  for (size_t channel = 0; channel < scaling.channels(); ++channel) {
    Table& table = values.tables_[channel];
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = scaling(static_cast<double>(i) / 255.0, channel);
      if (!std::isfinite(table[i])) {
        return Error(ErrorKind::kJob, "`deviation: {}` makes pixels too large for float32",
                     scaling.deviation(channel));
      }
    }
    if (scaling.mean(channel) == 0) {
      values.factors_[channel] = factors_of(1.0 / 255.0 / scaling.deviation(channel), table);
    }
  }
  return values;
}

PixelValues::Factors PixelValues::factors_of(double factor, const Table& table) {
  if (factor < kLeastFactor) return {};
  Factors factors;
  // Without its last eight bits, as many as a byte has.
  factors.high =
      std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(factor)) & ~uint32_t{255});
  factors.low = static_cast<float>(factor - static_cast<double>(factors.high));
  std::array<uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  Table products{};
  TwoProducts()(bytes.data(), bytes.size(), factors.high, factors.low, products.data());
  const bool equal = std::ranges::equal(products, table, {}, std::bit_cast<uint32_t, float>,
                                        std::bit_cast<uint32_t, float>);
  return equal ? factors : Factors();
}

void PixelValues::put(std::span<const uint8_t> planes, size_t channels, float* to, Isa isa) const {
  if (tables_.size() == 1) return put_channel(0, planes, to, isa);
  const size_t area = planes.size() / channels;
  for (size_t i = 0; i < channels; ++i) {
    put_channel(i, planes.subspan(i * area, area), to + i * area, isa);
  }
}

void PixelValues::put_channel(size_t channel, std::span<const uint8_t> from, float* to,
                              Isa isa) const {
  const auto [high, low] = factors(channel);
  if (high == 0) return put_bytes(of(channel), from, to);
  run_for(isa, TwoProducts(), from.data(), from.size(), high, low, to);
}

void PixelValues::put_in_turns(std::span<const uint8_t> pixels, float* to, Isa isa) const {
  const size_t area = pixels.size() / 3;
  const std::array high = {factors(0).high, factors(1).high, factors(2).high};
  const std::array low = {factors(0).low, factors(1).low, factors(2).low};
  // Without vectors the table is quicker.
  if (isa != Isa::kBaseline && std::ranges::find(high, 0.0F) == high.end()) {
    run_for(isa, ThreeInTurns(), pixels.data(), area, high.data(), low.data(), to, to + area,
            to + 2 * area);
    return;
  }
  const Table& first = of(0);
  const Table& second = of(1);
  const Table& third = of(2);
  const uint8_t* from = pixels.data();
  for (size_t i = 0; i < area; ++i, from += 3) {
    to[i] = first[from[0]];
    to[i + area] = second[from[1]];
    to[i + 2 * area] = third[from[2]];
  }
}

void PixelValues::add_to(Hasher& hasher) const {
  for (const Table& table : tables_) hasher.add(table.data(), sizeof(table));
}

}  // namespace muster::data
