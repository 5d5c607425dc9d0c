#include "muster/sync/low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "muster/base/random.h"

namespace muster::sync {
namespace {

// Sums side by side, which a compiler turns into vectors, added up in one order.
float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kSide = 16;
  std::array<float, kSide> sums = {};
  size_t i = 0;
  for (; i + kSide <= a.size(); i += kSide) {
    for (size_t k = 0; k < kSide; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (size_t k = 0; i < a.size(); ++i, ++k) sums[k] += a[i] * b[i];
  float all = 0;
  for (const float s : sums) all += s;
  return all;
}

double exact_dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void add_scaled(float factor, std::span<const float> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

}  // namespace

void LowRank::refill(std::span<float> right, uint64_t seed, int64_t step, size_t tensor) const {
  for (size_t k = 0; k < rank; ++k) {
    const auto column = right.subspan(k * columns, columns);
    if (std::ranges::any_of(column, [](float v) { return v != 0; })) continue;
    RandomStream random(seed, Purpose::kLowRank, static_cast<uint64_t>(step), tensor * rank + k);
    for (float& v : column) v = random.uniform() - 0.5f;
  }
}

void LowRank::multiply(std::span<const float> matrix, std::span<const float> right, size_t begin,
                       size_t end, std::span<float> left) const {
  for (size_t i = begin; i < end; ++i) {
    const auto row = matrix.subspan(i * columns, columns);
    for (size_t k = 0; k < rank; ++k) {
      left[k * rows + i] = dot(row, right.subspan(k * columns, columns));
    }
  }
}

void LowRank::orthogonalise(std::span<float> left) const {
  // What is left of a column is rounding, if it is less than this part of it.
  constexpr double kNothing = 1e-5;
  for (size_t k = 0; k < rank; ++k) {
    const auto column = left.subspan(k * rows, rows);
    const double before = std::sqrt(exact_dot(column, column));
    // Twice, as once leaves rounding of the size of what is removed.
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t other = 0; other < k; ++other) {
        const auto done = left.subspan(other * rows, rows);
        add_scaled(static_cast<float>(-exact_dot(column, done)), done, column);
      }
    }
    const double after = std::sqrt(exact_dot(column, column));
    const bool nothing = !(after > kNothing * before);
    for (float& v : column) v = nothing ? 0 : static_cast<float>(v / after);
  }
}

void LowRank::multiply_transposed(std::span<const float> matrix, std::span<const float> left,
                                  size_t begin, size_t end, std::span<float> right) const {
  for (size_t k = 0; k < rank; ++k) {
    std::ranges::fill(right.subspan(k * columns + begin, end - begin), 0.0f);
  }
  for (size_t i = 0; i < rows; ++i) {
    const auto part = matrix.subspan(i * columns + begin, end - begin);
    for (size_t k = 0; k < rank; ++k) {
      add_scaled(left[k * rows + i], part, right.subspan(k * columns + begin, end - begin));
    }
  }
}

void LowRank::expand(std::span<const float> left, std::span<const float> right, size_t begin,
                     size_t end, std::span<float> matrix) const {
  for (size_t i = begin; i < end; ++i) {
    const auto row = matrix.subspan(i * columns, columns);
    std::ranges::fill(row, 0.0f);
    for (size_t k = 0; k < rank; ++k) {
      add_scaled(left[k * rows + i], right.subspan(k * columns, columns), row);
    }
  }
}

}  // namespace muster::sync
