#include "muster/data/permutation.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/data_testing.h"

// Permutations with the keys of a stream are tested in order_test.cc; these are those with one key.
namespace muster::data {
namespace {

using testing::excess;

TEST(PermutationTest, HasEveryValueOnceAndCanBeUndone) {
  for (uint64_t n = 1; n <= 1200; n += n < 200 ? 1 : 37) {
    const Permutation permutation(n, n * 77);
    std::vector<bool> seen(n);
    for (uint64_t position = 0; position < n; ++position) {
      const uint64_t value = permutation(position);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]);
      seen[value] = true;
      ASSERT_EQ(permutation.position_of(value), position);
    }
  }
}

// Keys that differ by one, as hashes never do: the worst case.
TEST(PermutationTest, KeysGiveUnrelatedPermutations) {
  for (const uint64_t n : {5U, 12U, 63U, 64U, 65U, 100U}) {
    for (const uint64_t p : {uint64_t{0}, n / 2}) {
      std::vector<uint64_t> single(n);
      std::vector<uint64_t> pairs(n * (n - 1));
      for (uint64_t key = 0; key < 60 * pairs.size() + 20000; ++key) {
        const Permutation permutation(n, key);
        const uint64_t i = permutation(p);
        const uint64_t j = permutation(n - 1);
        ++single[i];
        ++pairs[i * (n - 1) + (j > i ? j - 1 : j)];
      }
      EXPECT_LT(excess(single), 4.5) << n;
      EXPECT_LT(excess(pairs), 4.5) << n;
    }
  }
}

TEST(PermutationTest, NeverChanges) {
  std::array<uint64_t, 8> some{};
  const std::array<uint64_t, 4> sizes = {7, 100, 5000, uint64_t{1} << 39};
  for (size_t i = 0; i < 4; ++i) {
    some[2 * i] = Permutation(sizes[i], 17)(0);
    some[2 * i + 1] = Permutation(sizes[i], 18)(3);
  }
  EXPECT_EQ(some, (std::array<uint64_t, 8>{2, 3, 41, 42, 1046, 278, 211850945557, 432903350165}));
}

}  // namespace
}  // namespace muster::data
