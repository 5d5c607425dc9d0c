#include "muster/config/units.h"

#include <cmath>
#include <cstring>
#include <regex>

#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::config {
namespace {

TEST(Duration, ReadsTheUnits) {
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("300ms"), 0.3);
  EXPECT_EQ(parse_duration("5m"), 300);
  EXPECT_EQ(parse_duration("1.5 h"), 5400);
  EXPECT_EQ(parse_duration("1d"), 86400);
  EXPECT_EQ(parse_duration("2"), 2);
  EXPECT_EQ(parse_duration("0"), 0);
  for (const char* wrong :
       {"", "s", "-1s", "5 minutes", "1h30m", "1e999s", "inf", "nan", "5S", "."}) {
    EXPECT_EQ(parse_duration(wrong), std::nullopt) << wrong;
  }
}

TEST(Duration, WritesTheLargestUnitThatFits) {
  EXPECT_EQ(duration_text(7200), "2h");
  EXPECT_EQ(duration_text(5400), "90m");
  EXPECT_EQ(duration_text(90), "90s");
  EXPECT_EQ(duration_text(0.3), "0.3s");
  EXPECT_EQ(duration_text(0), "0s");
}

TEST(Every, ReadsTheUnits) {
  using Unit = Every::Unit;
  EXPECT_EQ(parse_every("500 steps"), (Every{500, Unit::kSteps}));
  EXPECT_EQ(parse_every("1 step"), (Every{1, Unit::kSteps}));
  EXPECT_EQ(parse_every("1e3steps"), (Every{1000, Unit::kSteps}));
  EXPECT_EQ(parse_every("1 pass"), (Every{1, Unit::kPasses}));
  EXPECT_EQ(parse_every("0.5 passes"), (Every{0.5, Unit::kPasses}));
  EXPECT_EQ(parse_every("5m"), (Every{300, Unit::kSeconds}));
  EXPECT_EQ(parse_every("never"), Every{});
  EXPECT_EQ(parse_every("0"), Every{});
  EXPECT_EQ(parse_every("0 passes"), Every{});  // one way never to do something
  for (const char* wrong :
       {"", "500", "1.5 steps", "-1 steps", "steps", "every step", "1e", "1e+"}) {
    EXPECT_EQ(parse_every(wrong), std::nullopt) << wrong;
  }
}

TEST(Bytes, ReadsPowersOf1000AndOf1024) {
  EXPECT_EQ(parse_bytes("1048576"), 1048576);
  EXPECT_EQ(parse_bytes("1MB"), 1000000);
  EXPECT_EQ(parse_bytes("1.5kB"), 1500);
  EXPECT_EQ(parse_bytes("512 KiB"), 524288);
  EXPECT_EQ(parse_bytes("2GiB"), int64_t{2} << 30);
  for (const char* wrong : {"", "1mb", "1KB", "0.5", "1e300GB", "-1", "MB"}) {
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(bytes_text(1 << 20), "1MiB");
  EXPECT_EQ(bytes_text(1000000), "1000000");
  EXPECT_EQ(bytes_text(0), "0");
}

// What is written must read back as the same double, to the last bit, and fit the schema's pattern.
TEST(Units, WrittenValuesReadBackExactly) {
  const std::regex duration(kDurationPattern), every(kEveryPattern), bytes(kBytesPattern);
  RandomStream random(1, Purpose::kUser);
  for (int i = 0; i < 20000; ++i) {
    double value = std::ldexp(static_cast<double>(random.next_u64() >> 11),
                              static_cast<int>(random.below(300)) - 200);
    if (i % 3 == 0) value = static_cast<double>(random.below(1000000));
    if (i % 3 == 1) value = static_cast<double>(random.below(100000)) / 1000;
    ASSERT_EQ(parse_duration(duration_text(value)), value) << duration_text(value);
    for (const auto unit : {Every::Unit::kPasses, Every::Unit::kSeconds}) {
      const Every wanted = value == 0 ? Every{} : Every{value, unit};
      ASSERT_EQ(parse_every(every_text(wanted)), wanted) << every_text(wanted);
    }
    const auto whole = static_cast<int64_t>(random.below(uint64_t{1} << (1 + random.below(53))));
    ASSERT_EQ(parse_bytes(bytes_text(whole)), whole) << bytes_text(whole);
    if (i < 300) {
      ASSERT_TRUE(std::regex_match(duration_text(value), duration)) << duration_text(value);
      ASSERT_TRUE(std::regex_match(every_text({value, Every::Unit::kPasses}), every));
      ASSERT_TRUE(std::regex_match(bytes_text(whole), bytes));
    }
  }
}

}  // namespace
}  // namespace muster::config
