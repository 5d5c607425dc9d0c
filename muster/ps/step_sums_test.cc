#include "muster/ps/step_sums.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::ps {
namespace {

using ::testing::IsEmpty;

constexpr size_t kWidth = 5;

struct Lane {
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
};

// Keys that lanes share, of all magnitudes of gradients.
Lane random_lane(RandomStream& random, size_t rows) {
  Lane lane;
  for (size_t i = 0; i < rows; ++i) {
    lane.keys.push_back(random.next_u32() % 997 * 0x9e3779b97f4a7c15);
    for (size_t j = 0; j < kWidth; ++j) {
      const double sign = random.next_u32() % 2 == 0 ? 1 : -1;
      lane.gradients.push_back(
          static_cast<float>(sign * std::exp2(random.uniform() * 70 - 58)));  // up to 4,096
    }
  }
  return lane;
}

struct Sums {
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
  friend bool operator==(const Sums&, const Sums&) = default;
};

Sums finish(StepSums& sums) {
  Sums all;
  sums.finish(all.keys, all.gradients);
  return all;
}

Sums expected(const std::vector<Lane>& lanes) {
  std::map<uint64_t, std::vector<int64_t>> sums;
  for (const Lane& lane : lanes) {
    for (size_t i = 0; i < lane.keys.size(); ++i) {
      auto& sum = sums[lane.keys[i]];
      sum.resize(kWidth);
      for (size_t j = 0; j < kWidth; ++j) {
        const double value = lane.gradients[i * kWidth + j];
        sum[j] += std::llrint(std::fmin(std::fmax(value, -512), 512) * 0x1p44);
      }
    }
  }
  Sums all;
  for (const auto& [key, sum] : sums) {
    all.keys.push_back(key);
    for (const int64_t one : sum) {
      all.gradients.push_back(static_cast<float>(static_cast<double>(one) * 0x1p-44));
    }
  }
  return all;
}

TEST(StepSums, AreTheSumsOfTheLanesOnEveryProcessor) {
  RandomStream random(3, Purpose::kUser);
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{70}, size_t{3000}}) {
    std::vector<Lane> lanes;
    for (int i = 0; i < 8; ++i) lanes.push_back(random_lane(random, rows));
    for (const Isa isa : usable_isas()) {
      StepSums sums(kWidth, isa);
      for (uint32_t i = 0; i < lanes.size(); ++i) {
        sums.add(i, 0.1, lanes[i].keys, lanes[i].gradients.data());
        sums.add(i, 0.1, lanes[i].keys, lanes[i].gradients.data());  // again: left out
      }
      EXPECT_EQ(sums.empty(), rows == 0);
      EXPECT_EQ(finish(sums), expected(lanes)) << rows << " rows, " << isa_name(isa);
    }
  }
}

TEST(StepSums, AreSavedWithTheSameBytesInWhateverOrderLanesCame) {
  RandomStream random(4, Purpose::kUser);
  std::vector<Lane> lanes;
  for (int i = 0; i < 4; ++i) lanes.push_back(random_lane(random, 2000));
  StepSums forward(kWidth);
  StepSums backward(kWidth);
  for (uint32_t i = 0; i < 4; ++i) {
    forward.add(i, 0.1, lanes[i].keys, lanes[i].gradients.data());
    backward.add(3 - i, 0.1, lanes[3 - i].keys, lanes[3 - i].gradients.data());
    std::string ignored;
    if (i == 1) backward.save(ignored);  // in the middle
  }
  std::string a;
  std::string b;
  forward.save(a);
  backward.save(b);
  EXPECT_EQ(a, b);

  StepSums loaded(kWidth);
  std::string_view from = a;
  ASSERT_TRUE(loaded.load(from).ok());
  EXPECT_THAT(from, IsEmpty());
  EXPECT_EQ(loaded.lr(), 0.1);
  loaded.add(2, 0.1, lanes[2].keys, lanes[2].gradients.data());  // is there already
  EXPECT_EQ(finish(loaded), expected(lanes));
}

}  // namespace
}  // namespace muster::ps
