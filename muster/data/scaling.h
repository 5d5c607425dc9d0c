// How inputs are scaled: (x - mean) / deviation, where pixels are bytes divided by 255 first.
//
// `mean` and `deviation` are one number for all inputs, or one for each channel: of an image
// {C, H, W} that is its first dimension, and of columns {D} each column. Everything is computed in
// double and rounded once, so that all machines agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/hash.h"
#include "muster/base/isa.h"
#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::data {

// A plain value; safe for concurrent use.
class Scaling {
 public:
  // Leaves inputs as they are.
  Scaling() = default;
  // Errors (kJob): a number is not finite, a deviation is not above 0, or two lists have different
  // lengths.
  static Result<Scaling> make(const config::SourceOptions& options);

  // How many channels are scaled apart; 1: all alike.
  size_t channels() const { return mean_.size(); }
  double mean(size_t channel) const { return mean_[mean_.size() == 1 ? 0 : channel]; }
  double deviation(size_t channel) const {
    return deviation_[deviation_.size() == 1 ? 0 : channel];
  }
  float operator()(double x, size_t channel) const {
    return static_cast<float>((x - mean(channel)) / deviation(channel));
  }
  // What 0 becomes in each channel; one number if all are scaled alike.
  std::vector<float> zeros() const;
  // Error (kJob): there is not one number for each channel of such an input.
  Status check_shape(std::span<const int64_t> input_shape) const;
  void add_to(Hasher& hasher) const;

 private:
  // Of the same length.
  std::vector<double> mean_ = {0};
  std::vector<double> deviation_ = {1};
};

// What each byte of an image becomes. A plain value; safe for concurrent use.
//
// A table of 256 floats says it. Where two products have the same bits as the table, for all 256
// bytes, put() computes those: that takes half as long. So it is with a mean of 0; a mean would be
// one rounding more.
class PixelValues {
 public:
  using Table = std::array<float, 256>;

  // Every byte becomes 0.
  PixelValues() : tables_(1), factors_(1) {}
  // Error (kJob): a deviation makes pixels too large for float32.
  static Result<PixelValues> make(const Scaling& scaling);

  // Rising.
  const Table& of(size_t channel) const { return tables_[tables_.size() == 1 ? 0 : channel]; }
  // Writes what these bytes become, which are `channels` planes of the same size. Every `isa` gives
  // the same bits.
  void put(std::span<const uint8_t> planes, size_t channels, float* to, Isa isa = best_isa()) const;
  // The same of three channels whose bytes take turns, as those of red, green and blue in an image.
  void put_in_turns(std::span<const uint8_t> pixels, float* to, Isa isa = best_isa()) const;
  void add_to(Hasher& hasher) const;

 private:
  // A byte x becomes x * high + x * low, where x * high is exact. `high` is 0: there is only the
  // table.
  struct Factors {
    float high = 0;
    float low = 0;
  };
  static Factors factors_of(double factor, const Table& table);
  Factors factors(size_t channel) const { return factors_[factors_.size() == 1 ? 0 : channel]; }
  void put_channel(size_t channel, std::span<const uint8_t> from, float* to, Isa isa) const;

  std::vector<Table> tables_;     // one, or one for each channel
  std::vector<Factors> factors_;  // as many
};

}  // namespace muster::data
