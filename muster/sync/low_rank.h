// A matrix as the product of two narrow ones: what powersgd sends of a gradient (Vogels,
// Karimireddy, Jaggi, arXiv 1905.13727). For the sum M of matrices M_1 to M_R of m rows and n
// columns, and a right factor Q of n rows and `rank` columns that all have from the step before:
//
//   P = sum of M_i Q        m x rank, added up over the replicas
//   P's columns are made orthonormal (Gram-Schmidt)
//   Q = sum of M_i^T P      n x rank, added up over the replicas
//   M is about P Q^T
//
// which is a step of subspace iteration: if the gradients of successive steps are alike, P Q^T
// comes near to the best approximation of that rank.
//
// Factors are stored column after column. Sums are in a fixed order, those of Gram-Schmidt in
// double, so that everybody gets the same bits; a matrix may be cut into parts for threads.
//
// Pure: safe for concurrent use on different parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::sync {

struct LowRank {
  size_t rows = 0;
  size_t columns = 0;
  size_t rank = 0;

  // Whether both factors together are at most half as large as the matrix.
  bool pays() const { return 2 * rank * (rows + columns) <= rows * columns; }
  size_t left_size() const { return rows * rank; }
  size_t right_size() const { return columns * rank; }

  // Columns of Q that are zero, as all are at first, become random ones.
  void refill(std::span<float> right, uint64_t seed, int64_t step, size_t tensor) const;
  // Rows [begin, end) of M Q.
  void multiply(std::span<const float> matrix, std::span<const float> right, size_t begin,
                size_t end, std::span<float> left) const;
  // A column that depends on those before it becomes zero.
  void orthogonalise(std::span<float> left) const;
  // Rows [begin, end) of M^T P.
  void multiply_transposed(std::span<const float> matrix, std::span<const float> left, size_t begin,
                           size_t end, std::span<float> right) const;
  // Rows [begin, end) of P Q^T.
  void expand(std::span<const float> left, std::span<const float> right, size_t begin, size_t end,
              std::span<float> matrix) const;
};

}  // namespace muster::sync
