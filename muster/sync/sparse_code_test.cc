#include "muster/sync/sparse_code.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::sync {
namespace {

// Four tensors that are sent, of which one is empty, and one that is not.
struct Weights {
  explicit Weights(uint64_t seed)
      : layout(std::vector<size_t>{9000, 10, 0, 4096, 50}), values(layout.elements()) {
    RandomStream random(seed, Purpose::kUser);
    for (const auto& block : layout.blocks()) {
      for (float& v : exact::part(std::span(values), block)) v = random.normal();
    }
  }
  Sparse sparse(const SparseCode& code) const {
    Sparse sparse = code.empty();
    for (size_t b = 0; b < code.blocks(); ++b) code.select(b, values, sparse);
    code.quantise(values, sparse);
    return sparse;
  }
  exact::BlockLayout layout;
  std::vector<float> values;
};
constexpr size_t kSent = 4;

TEST(SparseCode, SendsAShareOfEachBlockAndAtLeastOne) {
  const Weights weights(1);
  const SparseCode code(weights.layout, kSent, 64);
  ASSERT_EQ(code.blocks(), 5u);
  EXPECT_EQ(code.values(), 64u + 64 + 13 + 1 + 64);  // of 4096, 4096, 808, 10 and 4096
  EXPECT_EQ(SparseCode(weights.layout, kSent, 4096).values(), 9000u + 10 + 4096);
}

// The four values of a tensor, in the words of the paper, step by step.
TEST(SparseCode, BooksHaveTheMeansOfFourBins) {
  const Weights weights(2);
  const SparseCode code(weights.layout, kSent, 64);
  const Sparse sparse = weights.sparse(code);
  std::vector<double> sent;
  for (size_t i = 0; i < 141; ++i) {
    const size_t block = std::min<size_t>(i / 64, 2);
    sent.push_back(weights.values[block * 4096 + sparse.places[i]]);
  }
  double mean = 0;
  for (const double v : sent) mean += v / 141;
  double variance = 0;
  for (const double v : sent) variance += (v - mean) * (v - mean) / 141;
  const double width = 6 * std::sqrt(variance) / 4;
  std::map<int, std::pair<double, int>> bins;
  for (size_t i = 0; i < sent.size(); ++i) {
    const int bin = std::clamp(static_cast<int>(std::floor((sent[i] - mean) / width)) + 2, 0, 3);
    EXPECT_EQ(sparse.codes[i], bin);
    bins[bin].first += sent[i];
    bins[bin].second += 1;
  }
  for (const auto& [bin, total] : bins) {
    EXPECT_NEAR(sparse.books[0].at(static_cast<size_t>(bin)), total.first / total.second, 1e-6);
  }
}

TEST(SparseCode, WhatIsWrittenIsRead) {
  for (const int64_t keep : {1, 7, 64, 512, 4096}) {
    const Weights weights(static_cast<uint64_t>(keep));
    const SparseCode code(weights.layout, kSent, keep);
    const Sparse sparse = weights.sparse(code);
    std::vector<std::byte> bytes(3);  // something before it
    code.write(sparse, bytes);
    const size_t size = bytes.size();
    EXPECT_LE(size - 3, code.largest_size()) << keep;
    bytes.resize(size + 5);  // and after it
    auto rest = std::span<const std::byte>(bytes).subspan(3);
    Sparse back = code.empty();
    ASSERT_TRUE(code.read(rest, back)) << keep;
    EXPECT_EQ(back, sparse) << keep;
    EXPECT_EQ(rest.size(), 5u) << keep;
    // Cut anywhere it is refused.
    for (size_t cut = 0; cut < size - 3; cut += 1 + size / 50) {
      auto part = std::span<const std::byte>(bytes).subspan(3, cut);
      EXPECT_FALSE(code.read(part, back)) << keep << ", " << cut << " bytes of " << size - 3;
    }
  }
}

TEST(SparseCode, PlacesBeyondABlockAreRefused) {
  const exact::BlockLayout layout(std::vector<size_t>{100});
  const SparseCode code(layout, 1, 64);
  ASSERT_EQ(code.values(), 2u);
  std::vector<std::byte> bytes(16 + 1, std::byte{0});
  bytes.resize(bytes.size() + 40, std::byte{0xFF});
  auto rest = std::span<const std::byte>(bytes);
  Sparse back = code.empty();
  EXPECT_FALSE(code.read(rest, back));
}

TEST(SparseCode, OneOf64ValuesTakesLessThanTenBits) {
  const exact::BlockLayout layout(std::vector<size_t>{size_t{1} << 20});
  std::vector<float> values(layout.elements());
  RandomStream random(9, Purpose::kUser);
  for (float& v : values) v = random.normal();
  const SparseCode code(layout, 1, 64);
  Sparse sparse = code.empty();
  for (size_t b = 0; b < code.blocks(); ++b) code.select(b, values, sparse);
  code.quantise(values, sparse);
  std::vector<std::byte> bytes;
  code.write(sparse, bytes);
  EXPECT_LT(static_cast<double>(bytes.size()) * 8 / static_cast<double>(code.values()), 9.6);
}

TEST(SparseCode, WhatWasSentIsSubtracted) {
  Weights weights(5);
  const SparseCode code(weights.layout, kSent, 64);
  const Sparse sparse = weights.sparse(code);
  const auto before = weights.values;
  code.subtract(sparse, weights.values);
  size_t changed = 0;
  for (size_t i = 0; i < before.size(); ++i) changed += before[i] != weights.values[i] ? 1 : 0;
  EXPECT_EQ(changed, code.values());
  const size_t first = sparse.places[0];
  EXPECT_EQ(weights.values[first], before[first] - sparse.books[0].at(sparse.codes[0]));
}

TEST(SparseCode, AMeanIsOverThoseWhoSentTheElement) {
  const exact::BlockLayout layout(std::vector<size_t>{20});
  const SparseCode code(layout, 1, 600);  // 3 of 20
  std::vector<Sparse> senders(3, code.empty());
  senders[0] = {.places = {1, 5, 9}, .codes = {0, 1, 2}, .books = {{1, 2, 3, 4}}};
  senders[1] = {.places = {1, 6, 9}, .codes = {3, 0, 0}, .books = {{10, 20, 30, 40}}};
  senders[2] = {.places = {1, 7, 19}, .codes = {1, 1, 0}, .books = {{100, 200, 300, 400}}};
  std::vector<float> weights(layout.elements(), 1000);
  EXPECT_TRUE(code.merge(0, senders, 0.5f, weights));
  std::vector<float> after(layout.elements(), 1000);
  after[1] = 1000 - 0.5f * ((1 + 40 + 200) / 3.0f);
  after[5] = 1000 - 1;
  after[6] = 1000 - 5;
  after[7] = 1000 - 100;
  after[9] = 1000 - 0.5f * 6.5f;
  after[19] = 1000 - 50;
  EXPECT_EQ(weights, after);
  senders[2].books[0][0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(code.merge(0, senders, 0.5f, weights));
}

// All values at the end of the block: the longest gaps.
TEST(SparseCode, NothingIsLongerThanTheLargestSize) {
  for (const int64_t keep : {1, 3, 64, 1000}) {
    const exact::BlockLayout layout(std::vector<size_t>{4096});
    const SparseCode code(layout, 1, keep);
    Sparse sparse = code.empty();
    const auto first = static_cast<uint16_t>(4096 - keep);
    std::iota(sparse.places.begin(), sparse.places.end(), first);
    std::vector<std::byte> bytes;
    code.write(sparse, bytes);
    EXPECT_LE(bytes.size(), code.largest_size()) << keep;
  }
}

}  // namespace
}  // namespace muster::sync
