#include "muster/base/text.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string> kWords = {"batch", "lanes", "passes", "lr", "momentum"};

TEST(Closest, FindsWhatWasMeant) {
  EXPECT_EQ(closest("batch", kWords), "batch");
  EXPECT_EQ(closest("btach", kWords), "batch");  // swapped letters count once
  EXPECT_EQ(closest("lane", kWords), "lanes");
  EXPECT_EQ(closest("mommentun", kWords), "momentum");
  EXPECT_EQ(closest("rl", kWords), "lr");
}

TEST(Closest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(closest("epochs", kWords), "");
  EXPECT_EQ(closest("xy", kWords), "");
  EXPECT_EQ(closest("", kWords), "");
  EXPECT_EQ(closest("batch", {}), "");
  EXPECT_EQ(did_you_mean("epochs", kWords), "");
  EXPECT_EQ(did_you_mean("lanse", kWords), " (did you mean 'lanes'?)");
}

TEST(Text, JoinsSplitsAndTrims) {
  const std::vector<std::string> abc = {"a", "b", "c"};
  EXPECT_EQ(join_words(abc), "a, b and c");
  EXPECT_EQ(join_words(std::span(abc).first(2), "or"), "a or b");
  EXPECT_EQ(join_words(std::span(abc).first(1)), "a");
  EXPECT_EQ(join_words({}), "");
  EXPECT_THAT(split("a.b..c", '.'), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", '.'), ElementsAre(""));
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Text, CredentialsInAddressesAreNoticed) {
  for (const auto* address :
       {"https://me:secret@host/x", "http://me@host", "http://me:pa/ss@host/x", "s3://KEY:a@b/x",
        "s3a://KEY:a/b+c@bucket/x", "s3://KEY:12/3@bucket/x", "ftp://me:secret@h/x",
        "http://me:s?e@host/x", "webhdfs://me:s@h:9870/x"}) {
    EXPECT_TRUE(has_credentials(address)) << address;
  }
  for (const auto* address :
       {"https://host/x@y", "https://host:8443/x@y?z=@", "s3://bucket/a:b@c", "data/a:b@c.csv",
        "http://[::1]:80/x@y", "http://[::1]/x@y", "a b://x@y", "://@", "", "me@host"}) {
    EXPECT_FALSE(has_credentials(address)) << address;
  }
}

TEST(Text, NumbersAsPeopleReadThem) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(std::numeric_limits<uint64_t>::max()), "18,446,744,073,709,551,615");
  EXPECT_EQ(counted(0, "worker"), "0 workers");
  EXPECT_EQ(counted(1, "worker"), "1 worker");
  EXPECT_EQ(counted(1200, "worker"), "1,200 workers");
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(999.6), "1.0 kB");
  EXPECT_EQ(human_bytes(5.25e6), "5.2 MB");
  EXPECT_EQ(human_bytes(3e15), "3000.0 TB");
  EXPECT_EQ(human_seconds(0.04), "0.0s");
  EXPECT_EQ(human_seconds(9.96), "10s");
  EXPECT_EQ(human_seconds(59.7), "1m00s");
  EXPECT_EQ(human_seconds(75), "1m15s");
  EXPECT_EQ(human_seconds(3599.6), "1h00m");
  EXPECT_EQ(human_seconds(7260), "2h01m");
  EXPECT_EQ(human_seconds(-1), "?");
  EXPECT_EQ(human_seconds(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace muster
