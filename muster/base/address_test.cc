#include "muster/base/address.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Address, HostAndPort) {
  EXPECT_EQ(host_of("10.0.0.1:7000"), "10.0.0.1");
  EXPECT_EQ(host_of("[::1]:7000"), "::1");
  EXPECT_EQ(port_of("[::1]:7000"), "7000");
}

TEST(Address, AColonInAHostIsPutInBrackets) {
  EXPECT_EQ(bracketed("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(bracketed("::1"), "[::1]");
  EXPECT_EQ(bracketed("[::1]"), "[::1]");
  EXPECT_EQ(host_of(bracketed("fe80::2") + ":1"), "fe80::2");
}

TEST(Address, EveryAddressIsNobodys) {
  EXPECT_TRUE(is_wildcard("0.0.0.0"));
  EXPECT_TRUE(is_wildcard("::"));
  EXPECT_FALSE(is_wildcard("10.0.0.1"));
}

TEST(Address, TowardsThisMachineItIsTheSame) {
  const auto own = own_address_towards("127.0.0.1");
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_EQ(*own, "127.0.0.1");
}

}  // namespace
}  // namespace muster
