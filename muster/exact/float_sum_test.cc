#include "muster/exact/float_sum.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "muster/exact/fixed_point.h"

namespace muster::exact {
namespace {

TEST(FloatSum, AddsAndSaysTheExponentOnEveryInstructionSet) {
  for (const Isa isa : usable_isas()) {
    for (size_t n : {1, 7, 64, 1000}) {
      std::vector<float> a(n), b(n), sum(n);
      for (size_t i = 0; i < n; ++i) {
        a[i] = 0.25F * static_cast<float>(i);
        b[i] = 3.0F - static_cast<float>(i);
      }
      EXPECT_EQ(store_floats(a, sum.data(), isa), exponent_of(a));
      EXPECT_EQ(add_floats(b, sum.data(), isa), exponent_of(b));
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
    }
  }
}

TEST(FloatSum, SeesWhatIsNotFinite) {
  std::vector<float> g(100, 1.0F), sum(100);
  g[63] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(store_floats(g, sum.data()), kNotFinite);
  g[63] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(add_floats(g, sum.data()), kNotFinite);
}

}  // namespace
}  // namespace muster::exact
