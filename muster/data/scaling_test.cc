#include "muster/data/scaling.h"

#include <bit>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::SourceOptions source(std::vector<double> mean, std::vector<double> deviation) {
  config::SourceOptions options;
  options.mean = std::move(mean);
  options.deviation = std::move(deviation);
  return options;
}

std::string failure(std::vector<double> mean, std::vector<double> deviation) {
  const auto scaling = Scaling::make(source(std::move(mean), std::move(deviation)));
  return scaling.ok() ? "" : scaling.error().message();
}

TEST(ScalingTest, OneNumberIsForAllChannels) {
  const auto scaling = Scaling::make(source({1}, {2}));
  ASSERT_TRUE(scaling.ok());
  EXPECT_EQ(scaling->channels(), 1U);
  EXPECT_EQ((*scaling)(4, 0), 1.5F);
  EXPECT_EQ((*scaling)(4, 7), 1.5F);
  EXPECT_THAT(scaling->zeros(), ElementsAre(-0.5F));
  EXPECT_TRUE(scaling->check_shape(std::vector<int64_t>{3, 8, 8}).ok());
  EXPECT_TRUE(scaling->check_shape({}).ok());
}

TEST(ScalingTest, AListHasOneForEachChannel) {
  const auto scaling = Scaling::make(source({1, 2, 3}, {2}));
  ASSERT_TRUE(scaling.ok());
  EXPECT_EQ(scaling->channels(), 3U);
  EXPECT_EQ((*scaling)(4, 0), 1.5F);
  EXPECT_EQ((*scaling)(4, 2), 0.5F);
  EXPECT_THAT(scaling->zeros(), ElementsAre(-0.5F, -1, -1.5F));
  EXPECT_TRUE(scaling->check_shape(std::vector<int64_t>{3, 8, 8}).ok());
  EXPECT_TRUE(scaling->check_shape(std::vector<int64_t>{3}).ok());
  EXPECT_EQ(scaling->check_shape(std::vector<int64_t>{1, 28, 28}).error().message(),
            "`mean` or `deviation` has 3 numbers, one for each channel or column, but the input "
            "has the shape {1, 28, 28}: give 1 of them, or one for all");
  EXPECT_FALSE(scaling->check_shape({}).ok());
}

TEST(ScalingTest, RefusesWhatIsNoScaling) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {kNan, kInf}) {
    EXPECT_THAT(failure({bad}, {1}), HasSubstr("`mean` must be a finite number"));
    EXPECT_THAT(failure({0, bad, 0}, {1}), HasSubstr("`mean` must be a finite number"));
    EXPECT_THAT(failure({0}, {1, bad}), HasSubstr("`deviation` must be a finite number above 0"));
  }
  for (const double bad : {0.0, -1.0}) {
    EXPECT_THAT(failure({0}, {1, bad}), HasSubstr("`deviation` must be a finite number above 0"));
  }
  EXPECT_THAT(failure({}, {1}), HasSubstr("`mean`"));
  EXPECT_THAT(failure({0}, {}), HasSubstr("`deviation`"));
  EXPECT_THAT(failure({0, 0, 0}, {1, 1}), HasSubstr("`mean` has 3 numbers and `deviation` 2"));
}

// So that the hash of data that was scaled by one number is what it was before lists existed.
TEST(ScalingTest, OfOneNumberEachTheHashIsThatOfTheTwo) {
  const auto scaling = Scaling::make(source({0.25}, {4}));
  Hasher hasher;
  scaling->add_to(hasher);
  const double numbers[] = {0.25, 4};
  Hasher expected;
  expected.add(numbers, sizeof(numbers));
  EXPECT_EQ(hasher.finish(), expected.finish());
}

TEST(PixelValuesTest, EachByteBecomesItsValueWhateverTheirNumber) {
  const auto values = PixelValues::make(*Scaling::make(source({0.3}, {0.7})));
  ASSERT_TRUE(values.ok());
  const auto& value = values->of(0);
  EXPECT_EQ(value[51], static_cast<float>((0.2 - 0.3) / 0.7));
  std::vector<uint8_t> bytes(300);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
  for (size_t count = 0; count < bytes.size(); ++count) {
    for (size_t first = 0; first < 3 && first <= count; ++first) {  // not aligned
      const auto some = std::span(bytes).subspan(first, count - first);
      std::vector<float> out(some.size() + 1, -100);
      values->put(some, 1, out.data());
      for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(out[i], value[some[i]]) << count;
      ASSERT_EQ(out.back(), -100) << "behind the end";
    }
  }
}

TEST(PixelValuesTest, WithAnyDeviationAndInstructionSetTheyAreThoseOfTheTable) {
  std::vector<uint8_t> bytes(256 + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const double mean : {0.0, 0.1307, 0.5}) {
    for (double deviation : {1.0, 0.3081, 0.225, 1.0 / 255, 3.0, 1e18, 1e25, 1e42, 1e300, 1e-30}) {
      for (int i = 0; i < 50; ++i, deviation *= 1.0173) {
        const auto scaling = Scaling::make(source({mean}, {deviation}));
        const auto values = PixelValues::make(*scaling);
        ASSERT_TRUE(values.ok());
        for (const Isa isa : usable_isas()) {
          std::vector<float> out(bytes.size());
          values->put(bytes, 1, out.data(), isa);
          for (size_t k = 0; k < bytes.size(); ++k) {
            const float expected = (*scaling)(bytes[k] / 255.0, 0);
            ASSERT_EQ(std::bit_cast<uint32_t>(out[k]), std::bit_cast<uint32_t>(expected))
                << mean << " " << deviation << " " << isa_name(isa);
          }
        }
      }
    }
  }
}

TEST(PixelValuesTest, EachChannelHasItsOwn) {
  const auto values = PixelValues::make(*Scaling::make(source({0, 1, 2}, {1, 2, 4})));
  ASSERT_TRUE(values.ok());
  const std::vector<uint8_t> planes = {0, 255, 0, 255, 0, 255};
  std::vector<float> out(planes.size());
  values->put(planes, 3, out.data());
  EXPECT_THAT(out, ElementsAre(0, 1, -0.5F, 0, -0.5F, -0.25F));
}

TEST(PixelValuesTest, ChannelsMayTakeTurns) {
  for (const auto& options :
       {source({0}, {1}), source({0}, {0.225}), source({0, 0, 0}, {0.229, 0.224, 0.225}),
        source({0, 0.456, 0}, {0.229, 0.224, 0.225}), source({0.5}, {0.5})}) {
    const auto values = PixelValues::make(*Scaling::make(options));
    ASSERT_TRUE(values.ok());
    for (const size_t area : {0, 1, 7, 64, 1000}) {
      std::vector<uint8_t> pixels(3 * area);
      for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 41 + i / 256);
      for (const Isa isa : usable_isas()) {
        std::vector<float> out(pixels.size() + 1, -100);
        values->put_in_turns(pixels, out.data(), isa);
        for (size_t i = 0; i < pixels.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(out[i % 3 * area + i / 3]),
                    std::bit_cast<uint32_t>(values->of(i % 3)[pixels[i]]))
              << area << " " << isa_name(isa);
        }
        ASSERT_EQ(out.back(), -100) << "behind the end";
      }
    }
  }
}

TEST(PixelValuesTest, ADeviationThatIsTooSmallIsNamed) {
  const auto values = PixelValues::make(*Scaling::make(source({0}, {1, 1e-200})));
  ASSERT_FALSE(values.ok());
  EXPECT_THAT(values.error().message(), HasSubstr("`deviation: 1e-200` makes pixels too large"));
}

}  // namespace
}  // namespace muster::data
