// Powers with the same bits everywhere.
#pragma once

#include <cstdint>

namespace muster {

// beta^n by squaring: only multiplications, which IEEE 754 pins down. std::pow may differ in the
// last bit from one C library, or one processor, to the next.
inline double power(double beta, int64_t n) {
  double result = 1;
  for (; n > 0; n /= 2, beta *= beta) {
    if (n % 2 == 1) result *= beta;
  }
  return result;
}

}  // namespace muster
