#include "muster/lab/hosts_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::lab {
namespace {

using testing::HasSubstr;

TEST(Rate, IsReadWithItsUnit) {
  EXPECT_EQ(parse_rate("100mbit"), 1e8);
  EXPECT_EQ(parse_rate("1.5gbit"), 1.5e9);
  EXPECT_EQ(parse_rate("64kbit"), 64e3);
  for (const char* wrong : {"", "100", "mbit", "100mbps", "-1mbit", "0kbit", "nanmbit", "1e400kbit",
                            "1e300gbit", "0.0001kbit"}) {
    EXPECT_EQ(parse_rate(wrong), std::nullopt) << wrong;
  }
}

TEST(HostsFile, HostsHaveTheUsualLinkUnlessTheySayOtherwise) {
  const auto hosts = parse_hosts_file(R"(
rate: 100mbit
hosts:
  - paris
  - { name: tokyo, rate: 10mbit, delay: 120ms, loss: 0.001 }
)",
                                      "lab.yaml");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message();
  ASSERT_EQ(hosts->size(), 2U);
  EXPECT_EQ((*hosts)[0], (HostOptions{"paris", {.rate = 1e8}}));
  EXPECT_EQ((*hosts)[1],
            (HostOptions{"tokyo",
                         {.rate = 1e7, .delay = std::chrono::milliseconds(120), .loss = 0.001}}));
}

TEST(HostsFile, MistakesAreNamedWithTheirPlace) {
  const auto message = [](const char* text) {
    const auto hosts = parse_hosts_file(text, "lab.yaml");
    return hosts.ok() ? "accepted" : hosts.error().message();
  };
  EXPECT_THAT(message("[a, b]"), HasSubstr("'hosts:'"));
  EXPECT_THAT(message("hosts: []"), HasSubstr("at least one host"));
  EXPECT_THAT(message("hosts: [a, b, a]"), HasSubstr("lab.yaml:1:15: there are two hosts 'a'"));
  EXPECT_THAT(message("hosts: [a b]"), HasSubstr("'a b'"));
  EXPECT_THAT(message("hosts: [hub]"), HasSubstr("another name"));
  EXPECT_THAT(message("rate: fast\nhosts: [a]"), HasSubstr("100mbit"));
  EXPECT_THAT(message("delay: 2m\nhosts: [a]"), HasSubstr("at most 60s"));
  EXPECT_THAT(message("loss: 1\nhosts: [a]"), HasSubstr("less than 1"));
  EXPECT_THAT(message("hosts: [{name: a, rat: 1mbit}]"), HasSubstr("rate"));
}

}  // namespace
}  // namespace muster::lab
