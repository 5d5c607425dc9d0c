#include "muster/optim/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "muster/base/check.h"
#include "muster/optim/norm.h"

namespace muster::optim {
namespace {

constexpr int kSteps = 5;
constexpr float kA = 3.4445f;
constexpr float kB = -4.7750f;
constexpr float kC = 2.0315f;
constexpr double kSmallestNorm = 1e-7;

// A tile of the result is kept in registers (with AVX-512): kHeight * kWidth sums.
constexpr size_t kHeight = 4;
constexpr size_t kWidth = 32;

// Rows [begin, end) of  out = own * add + factor * left * right,  where left has `inner` columns,
// and right, add and out have `columns`. Without kAdd, out = factor * left * right. `panel` has
// room for kWidth columns of right, which are copied there, as they lie far apart.
template <bool kAdd>
struct MultiplyRows {
  MUSTER_ALWAYS_INLINE static float put(float sum, float factor, const float* add, float own,
                                        size_t at) {
    if constexpr (kAdd) return own * add[at] + factor * sum;
    return factor * sum;
  }

  MUSTER_ALWAYS_INLINE void operator()(size_t begin, size_t end, size_t inner, size_t columns,
                                       const float* left, const float* right, float factor,
                                       const float* add, float own, float* out,
                                       float* __restrict panel) const {
    for (size_t j = 0; j < columns; j += kWidth) {
      const size_t width = std::min(kWidth, columns - j);
      for (size_t k = 0; k < inner; ++k) {
        for (size_t x = 0; x < kWidth; ++x) {
          panel[k * kWidth + x] = x < width ? right[k * columns + j + x] : 0;
        }
      }
      for (size_t i = begin; i < end; i += kHeight) {
        // Rows that there are not are computed like the last one, and not written.
        const size_t height = std::min(kHeight, end - i);
        const float* rows[kHeight];
        for (size_t y = 0; y < kHeight; ++y) {
          rows[y] = left + (i + std::min(y, height - 1)) * inner;
        }
        float sums[kHeight][kWidth] = {};
        for (size_t k = 0; k < inner; ++k) {
          for (size_t y = 0; y < kHeight; ++y) {
            const float l = rows[y][k];
            for (size_t x = 0; x < kWidth; ++x) sums[y][x] += l * panel[k * kWidth + x];
          }
        }
        for (size_t y = 0; y < height; ++y) {
          const size_t at = (i + y) * columns + j;
          for (size_t x = 0; x < width; ++x) {
            out[at + x] = put(sums[y][x], factor, add, own, at + x);
          }
        }
      }
    }
  }
};

// In parts, each with a panel of its own.
template <bool kAdd>
void multiply(const NewtonSchulz::ForRows& for_rows, Isa isa, size_t rows, size_t inner,
              size_t columns, const float* left, const float* right, float factor, const float* add,
              float own, float* out) {
  for_rows(rows, [&](size_t begin, size_t end) {
    // Of the thread, so that a step allocates nothing after the first one.
    static thread_local std::vector<float> panel;
    panel.resize(inner * kWidth);
    run_for(isa, MultiplyRows<kAdd>{}, begin, end, inner, columns, left, right, factor, add, own,
            out, panel.data());
  });
}

void transpose(std::span<const float> from, size_t rows, size_t columns, std::span<float> to,
               const NewtonSchulz::ForRows& for_rows) {
  constexpr size_t kTile = 16;  // a line of both
  for_rows(rows, [&](size_t begin, size_t end) {
    for (size_t j = 0; j < columns; j += kTile) {
      for (size_t i = begin; i < end; ++i) {
        for (size_t x = j; x < std::min(j + kTile, columns); ++x) {
          to[x * rows + i] = from[i * columns + x];
        }
      }
    }
  });
}

}  // namespace

void NewtonSchulz::run(std::span<float> matrix, size_t rows, size_t columns,
                       const ForRows& for_rows, Isa isa) {
  MUSTER_CHECK(matrix.size() == rows * columns, "a matrix has rows and columns");
  if (matrix.empty()) return;
  const double norm = std::sqrt(sum_of_squares(matrix, 0, isa));
  const auto scale = static_cast<float>(1 / std::max(norm, kSmallestNorm));
  for (float& v : matrix) v *= scale;
  // The smaller side decides how much there is to compute.
  const bool tall = rows > columns;
  const size_t m = std::min(rows, columns);
  const size_t n = std::max(rows, columns);
  x_.resize(m * n);
  next_.resize(m * n);
  transposed_.resize(m * n);
  gram_.resize(m * m);
  polynomial_.resize(m * m);
  if (tall) {
    transpose(matrix, rows, columns, x_, for_rows);
  } else {
    std::ranges::copy(matrix, x_.begin());
  }
  for (int step = 0; step < kSteps; ++step) {
    transpose(x_, m, n, transposed_, for_rows);
    multiply<false>(for_rows, isa, m, n, m, x_.data(), transposed_.data(), 1, nullptr, 0,
                    gram_.data());
    multiply<true>(for_rows, isa, m, m, m, gram_.data(), gram_.data(), kC, gram_.data(), kB,
                   polynomial_.data());
    multiply<true>(for_rows, isa, m, m, n, polynomial_.data(), x_.data(), 1, x_.data(), kA,
                   next_.data());
    std::swap(x_, next_);
  }
  if (tall) {
    transpose(x_, m, n, matrix, for_rows);
  } else {
    std::ranges::copy(x_, matrix.begin());
  }
}

}  // namespace muster::optim
