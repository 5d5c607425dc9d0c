#include "muster/base/isa.h"

#include <array>
#include <cstddef>

#include <gtest/gtest.h>

namespace muster {
namespace {

struct Triple {
  MUSTER_ALWAYS_INLINE float operator()(const float* __restrict x, size_t n,
                                        float* __restrict y) const {
    for (size_t i = 0; i < n; ++i) y[i] = 3 * x[i];
    return n > 0 ? y[n - 1] : 0;
  }
};

TEST(Isa, BaselineAlwaysRunsAndTheBestIsUsable) {
  const auto isas = usable_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kBaseline);
  EXPECT_EQ(isas.back(), best_isa());
}

TEST(Isa, EveryVariantComputesTheSame) {
  std::array<float, 37> x{};
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i) - 1.3f;
  for (const Isa isa : usable_isas()) {
    std::array<float, 37> y{};
    EXPECT_EQ(run_for(isa, Triple{}, x.data(), x.size(), y.data()), y.back()) << isa_name(isa);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 3 * x[i]) << isa_name(isa) << " " << i;
  }
}

}  // namespace
}  // namespace muster
