#include "muster/data/augment.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::data {
namespace {

using ::testing::HasSubstr;

constexpr float kPadding = -9;

Schema image_schema(int64_t channels, int64_t height, int64_t width) {
  Schema schema;
  schema.input_shape = {channels, height, width};
  schema.padding = {kPadding};
  return schema;
}

Augmenter make(const config::AugmentOptions& options, const Schema& schema) {
  auto result = Augmenter::make(options, schema);
  EXPECT_TRUE(result.ok()) << result.error().message();
  return *result;
}

// Pixel values say where they came from: 100 * channel + 10 * y + x.
std::vector<float> ramp(const Schema& schema) {
  std::vector<float> image;
  for (int64_t c = 0; c < schema.input_shape[0]; ++c) {
    for (int64_t y = 0; y < schema.input_shape[1]; ++y) {
      for (int64_t x = 0; x < schema.input_shape[2]; ++x) {
        image.push_back(static_cast<float>(100 * c + 10 * y + x));
      }
    }
  }
  return image;
}

// What the change must have been, worked out pixel by pixel from the definition.
std::vector<float> changed(const std::vector<float>& image, const Schema& schema, int64_t dy,
                           int64_t dx, bool flip) {
  const int64_t height = schema.input_shape[1];
  const int64_t width = schema.input_shape[2];
  std::vector<float> out;
  for (int64_t c = 0; c < schema.input_shape[0]; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t from_y = y - dy;
        const int64_t from_x = (flip ? width - 1 - x : x) - dx;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        out.push_back(inside ? image[static_cast<size_t>((c * height + from_y) * width + from_x)]
                             : kPadding);
      }
    }
  }
  return out;
}

struct Change {
  int64_t dy;
  int64_t dx;
  bool flip;
  auto operator<=>(const Change&) const = default;
};

// Applies the augmenter to many samples and finds for each result which change it was; every result
// must be one of those that the options allow.
std::map<Change, int> changes(const Augmenter& augmenter, const Schema& schema, int64_t reach,
                              bool flips, int samples) {
  const auto image = ramp(schema);
  std::map<std::vector<float>, Change> known;
  for (int64_t dy = -reach; dy <= reach; ++dy) {
    for (int64_t dx = -reach; dx <= reach; ++dx) {
      known[changed(image, schema, dy, dx, false)] = {dy, dx, false};
      if (flips) known[changed(image, schema, dy, dx, true)] = {dy, dx, true};
    }
  }
  std::map<Change, int> counts;
  for (int i = 0; i < samples; ++i) {
    auto copy = image;
    augmenter.apply(5, 1, static_cast<uint64_t>(i), copy.data());
    const auto found = known.find(copy);
    EXPECT_NE(found, known.end()) << "sample " << i << " was changed in a way not asked for";
    if (found == known.end()) return counts;
    ++counts[found->second];
  }
  return counts;
}

void expect_even(const std::map<Change, int>& counts, size_t kinds, int samples) {
  ASSERT_EQ(counts.size(), kinds);
  const double expected = static_cast<double>(samples) / static_cast<double>(kinds);
  double chi2 = 0;
  for (const auto& [change, count] : counts) {
    chi2 += (count - expected) * (count - expected) / expected;
  }
  const auto freedom = static_cast<double>(kinds - 1);
  EXPECT_LT((chi2 - freedom) / std::sqrt(2 * freedom), 4.5);
}

TEST(AugmentTest, ShiftIsEvenOverAllMoves) {
  const Schema schema = image_schema(2, 6, 5);
  const auto augmenter = make({.shift = 2}, schema);
  expect_even(changes(augmenter, schema, 2, false, 10000), 25, 10000);
}

TEST(AugmentTest, CropIsEvenOverAllPlaces) {
  const Schema schema = image_schema(1, 5, 6);
  const auto augmenter = make({.crop = 1}, schema);
  expect_even(changes(augmenter, schema, 1, false, 10000), 9, 10000);
}

TEST(AugmentTest, FlipIsEverySecondTimeAndIndependentOfTheMove) {
  const Schema schema = image_schema(3, 4, 5);
  expect_even(changes(make({.flip = true}, schema), schema, 0, true, 10000), 2, 10000);
  const auto both = make({.shift = 1, .flip = true}, schema);
  expect_even(changes(both, schema, 1, true, 20000), 18, 20000);
}

TEST(AugmentTest, OneKindDoesNotDisturbTheOthers) {
  const Schema schema = image_schema(1, 7, 7);
  const auto shift = make({.shift = 2}, schema);
  const auto shift_and_flip = make({.shift = 2, .flip = true}, schema);
  int flipped = 0;
  for (uint64_t sample = 0; sample < 100; ++sample) {
    auto a = ramp(schema);
    auto b = a;
    shift.apply(1, 0, sample, a.data());
    shift_and_flip.apply(1, 0, sample, b.data());
    if (a != b) {
      ++flipped;
      a = changed(a, schema, 0, 0, true);
    }
    EXPECT_EQ(a, b);
  }
  EXPECT_GT(flipped, 20);
}

TEST(AugmentTest, ShiftThenCrop) {
  // Together they reach twice as far, and what the shift pushed out does not come back.
  const Schema schema = image_schema(1, 8, 8);
  const auto augmenter = make({.shift = 2, .crop = 2}, schema);
  const auto alone = make({.shift = 2}, schema);
  for (uint64_t sample = 0; sample < 300; ++sample) {
    auto image = ramp(schema);
    auto shifted = image;
    augmenter.apply(3, 0, sample, image.data());
    alone.apply(3, 0, sample, shifted.data());
    bool found = false;
    for (int64_t dy = -2; dy <= 2; ++dy) {
      for (int64_t dx = -2; dx <= 2; ++dx) {
        found = found || image == changed(shifted, schema, dy, dx, false);
      }
    }
    ASSERT_TRUE(found) << sample;
  }
}

TEST(AugmentTest, GapsHaveThePaddingOfTheirChannel) {
  Schema schema = image_schema(3, 4, 4);
  schema.padding = {-1, -2, -3};
  const auto augmenter = make({.shift = 3}, schema);
  for (uint64_t sample = 0; sample < 50; ++sample) {
    std::vector<float> image(48, 1);
    augmenter.apply(1, 0, sample, image.data());
    for (size_t i = 0; i < image.size(); ++i) {
      ASSERT_TRUE(image[i] == 1 || image[i] == schema.padding[i / 16]) << sample << " " << i;
    }
    for (size_t i = 0; i < 16; ++i) ASSERT_EQ(image[i] == 1, image[i + 16] == 1);
  }
  schema.padding = {-1, -2};
  EXPECT_FALSE(Augmenter::make({.shift = 1}, schema).ok());
}

TEST(AugmentTest, DependsOnSeedPassAndSampleOnly) {
  const Schema schema = image_schema(1, 28, 28);
  const auto augmenter = make({.shift = 3, .flip = true, .crop = 2}, schema);
  const auto result = [&](uint64_t seed, uint64_t pass, uint64_t sample) {
    auto image = ramp(schema);
    augmenter.apply(seed, pass, sample, image.data());
    return image;
  };
  const auto first = result(1, 2, 3);
  for (uint64_t other = 0; other < 50; ++other) result(other, other, other);
  EXPECT_EQ(result(1, 2, 3), first) << "whatever was computed in between";
  int differ = 0;
  for (uint64_t i = 10; i < 40; ++i) {
    differ += (result(i, 2, 3) != first) + (result(1, i, 3) != first) + (result(1, 2, i) != first);
  }
  EXPECT_GT(differ, 80);
}

TEST(AugmentTest, OffChangesNothing) {
  const Schema schema = image_schema(1, 4, 4);
  const auto augmenter = make({}, schema);
  EXPECT_FALSE(augmenter.active());
  auto image = ramp(schema);
  augmenter.apply(1, 1, 1, image.data());
  EXPECT_EQ(image, ramp(schema));
}

TEST(AugmentTest, RefusesWhatMakesNoSense) {
  Schema text;
  text.input = DType::kInt64;
  text.input_shape = {64};
  EXPECT_TRUE(Augmenter::make({}, text).ok()) << "nothing is asked for";
  const auto error = Augmenter::make({.flip = true}, text).error();
  EXPECT_EQ(error.kind(), ErrorKind::kJob);
  EXPECT_THAT(error.message(), HasSubstr("is for images"));
  const Schema image = image_schema(1, 28, 20);
  EXPECT_THAT(Augmenter::make({.shift = 20}, image).error().message(), HasSubstr("less than 20"));
  EXPECT_THAT(Augmenter::make({.crop = 99}, image).error().message(), HasSubstr("augment.crop"));
  EXPECT_FALSE(Augmenter::make({.shift = -1}, image).ok());
}

TEST(AugmentTest, NeverChanges) {
  // Part of the format of a run.
  const Schema schema = image_schema(1, 3, 3);
  auto image = ramp(schema);
  make({.shift = 1, .flip = true}, schema).apply(7, 1, 42, image.data());
  EXPECT_EQ(image, (std::vector<float>{kPadding, 0, 1, kPadding, 10, 11, kPadding, 20, 21}));
}

}  // namespace
}  // namespace muster::data
