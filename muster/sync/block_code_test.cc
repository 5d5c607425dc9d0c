#include "muster/sync/block_code.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::sync {
namespace {

std::vector<float> some_values(size_t count, uint64_t seed) {
  RandomStream random(seed, Purpose::kUser);
  std::vector<float> values(count);
  for (float& v : values) v = random.normal();
  return values;
}

std::unique_ptr<BlockCode> make(const std::string& strategy, int64_t keep = 64) {
  config::SyncOptions sync;
  sync.strategy = strategy;
  sync.keep = keep;
  return make_block_code(sync);
}

// What is sent of these values, in the words of the header, in double.
std::vector<double> sent_of(const std::string& strategy, const std::vector<float>& values,
                            size_t keep) {
  const auto n = static_cast<double>(values.size());
  std::vector<double> sent(values.size());
  std::vector<double> sizes;
  for (const float v : values) sizes.push_back(std::abs(v));
  if (strategy == "onebit") {
    double sums[2] = {};
    double counts[2] = {};
    for (const float v : values) {
      sums[v < 0] += v;
      counts[v < 0] += 1;
    }
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = sums[values[i] < 0] / counts[values[i] < 0];
    return sent;
  }
  double border = 0;
  if (strategy == "topk") {
    auto sorted = sizes;
    std::ranges::sort(sorted, std::greater{});
    border = sorted[keep - 1];
  } else {
    for (const double s : sizes) border += s * s / n;
    border = 3 * std::sqrt(border);
  }
  double mean = 0;
  double count = 0;
  const auto is_sent = [&](size_t i) {
    return strategy == "topk" ? sizes[i] >= border : sizes[i] > border;
  };
  for (size_t i = 0; i < sent.size(); ++i) {
    if (!is_sent(i)) continue;
    mean += sizes[i];
    count += 1;
  }
  mean /= count;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (!is_sent(i)) continue;
    double sum = 0;
    double members = 0;
    for (size_t j = 0; j < sent.size(); ++j) {
      const bool alike = strategy == "threshold" || (sizes[i] >= mean) == (sizes[j] >= mean);
      if (!is_sent(j) || !alike) continue;
      sum += sizes[j];
      members += 1;
    }
    sent[i] = (values[i] < 0 ? -1 : 1) * sum / members;
  }
  return sent;
}

class BlockCodeTest : public ::testing::TestWithParam<std::string> {};

TEST_P(BlockCodeTest, SendsWhatItsFormulaSays) {
  const auto code = make(GetParam());
  const auto values = some_values(4096, 1);
  auto rest = values;
  std::vector<std::byte> bytes;
  code->encode(rest, bytes);
  std::vector<float> sum(values.size());
  ASSERT_TRUE(code->add(bytes, sum));
  const auto expected = sent_of(GetParam(), values, 64);
  for (size_t i = 0; i < sum.size(); ++i) {
    ASSERT_NEAR(sum[i], expected[i], 1e-5) << i;
    ASSERT_EQ(rest[i], values[i] - sum[i]) << i;  // the rest is what was not sent, to the bit
  }
}

TEST_P(BlockCodeTest, BlocksOfAnySizeAndContents) {
  for (const size_t size : {1u, 2u, 7u, 8u, 9u, 100u, 4095u, 4096u}) {
    for (const int64_t keep : {1, 64, 4096}) {
      const auto code = make(GetParam(), keep);
      std::vector<std::vector<float>> blocks = {
          some_values(size, size), std::vector<float>(size), std::vector<float>(size, -0.0f),
          std::vector<float>(size, 1e-45f), std::vector<float>(size, -3e38f)};
      blocks.emplace_back(size).back() = 5;  // one that is not zero
      for (const auto& values : blocks) {
        auto rest = values;
        std::vector<std::byte> bytes;
        code->encode(rest, bytes);
        EXPECT_LE(bytes.size(), code->largest_size(size));
        std::vector<float> sum(size);
        ASSERT_TRUE(code->add(bytes, sum)) << size << " " << keep;
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(rest[i], values[i] - sum[i]);
          ASSERT_TRUE(std::isfinite(rest[i]));
        }
      }
    }
  }
}

TEST_P(BlockCodeTest, WhatIsTooShortOrTooLongIsRefused) {
  const auto code = make(GetParam());
  auto values = some_values(1000, 3);
  std::vector<std::byte> bytes;
  code->encode(values, bytes);
  std::vector<float> sum(1000);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(code->add(std::span(bytes).first(size), sum)) << size;
  }
  bytes.push_back({});
  EXPECT_FALSE(code->add(bytes, sum));
}

// So error feedback ends: what is not sent now is sent later.
TEST_P(BlockCodeTest, EverythingIsSentInTheEnd) {
  const auto code = make(GetParam());
  auto rest = some_values(300, 4);
  const auto size_of = [](const std::vector<float>& values) {
    double squares = 0;
    for (const float v : values) squares += static_cast<double>(v) * v;
    return squares;
  };
  const double before = size_of(rest);
  std::vector<std::byte> bytes;
  for (int step = 0; step < 400; ++step) code->encode(rest, bytes);
  EXPECT_LT(size_of(rest), 0.05 * before);
}

INSTANTIATE_TEST_SUITE_P(All, BlockCodeTest, ::testing::Values("topk", "threshold", "onebit"),
                         [](const auto& info) { return info.param; });

TEST(BlockCode, OneBitIsTheSameOnEveryInstructionSet) {
  config::SyncOptions onebit;
  onebit.strategy = "onebit";
  for (const size_t size : {1, 7, 8, 9, 100, 4095, 4096}) {
    auto left = some_values(size, size);
    left[0] = -0.0f;
    std::vector<std::byte> sent;
    make_block_code(onebit, Isa::kBaseline)->encode(left, sent);
    for (const Isa isa : usable_isas()) {
      auto values = some_values(size, size);
      values[0] = -0.0f;
      std::vector<std::byte> bytes;
      make_block_code(onebit, isa)->encode(values, bytes);
      EXPECT_EQ(bytes, sent) << size << " with " << isa_name(isa);
      EXPECT_EQ(values, left) << size << " with " << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace muster::sync
