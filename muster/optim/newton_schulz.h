// The matrix with the singular vectors of a given one and singular values near 1: five steps of the
// Newton-Schulz iteration with the coefficients of Muon (Jordan et al. 2024, see muon.cc).
//
//   X = M / |M|;  five times: A = X X^T;  X = a X + (b A + c A A) X
//
// Singular values of at least some 1/500 of |M| end between about 0.7 and 1.2, which is what Muon
// wants: the coefficients are chosen for small ones to grow fast.
//
// An element of a product is added up in the order of its terms, whoever computes it: any number of
// threads and any instruction set give the same bits. Torch does this in bfloat16; here it is
// float.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "muster/base/isa.h"

namespace muster::optim {

class NewtonSchulz {
 public:
  // Calls body(begin, end) for parts of [0, rows), which may run at the same time, and returns when
  // all have returned.
  using ForRows =
      std::function<void(size_t rows, const std::function<void(size_t begin, size_t end)>& body)>;

  // In place; the matrix is stored row by row. A matrix of zeros stays one.
  void run(std::span<float> matrix, size_t rows, size_t columns, const ForRows& for_rows,
           Isa isa = best_isa());

 private:
  // Kept from one matrix to the next.
  std::vector<float> x_, next_, transposed_, gram_, polynomial_;
};

}  // namespace muster::optim
