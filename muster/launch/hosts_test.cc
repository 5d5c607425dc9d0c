#include "muster/launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::launch {
namespace {

using testing::HasSubstr;

std::string said(std::string_view yaml) {
  const auto hosts = parse_hosts(yaml, "/etc/hosts.yaml");
  return hosts.ok() ? "nothing" : hosts.error().message();
}

TEST(Hosts, ANameAloneOrEverything) {
  const auto hosts = parse_hosts(R"(
- 10.0.0.2
- host: cluster-1
  workers: 2
  worker: /opt/muster/bin/muster-worker
  user: train
  port: 2222
  identity: keys/cluster
  address: 192.168.7.1
  options: [StrictHostKeyChecking=no]
)",
                                 "/etc/hosts.yaml");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message();
  ASSERT_EQ(hosts->size(), 2u);
  EXPECT_EQ((*hosts)[0].host, "10.0.0.2");
  EXPECT_EQ((*hosts)[0].workers, 1);
  EXPECT_EQ((*hosts)[0].reached_at(), "10.0.0.2");
  const Host& other = (*hosts)[1];
  EXPECT_EQ(other.workers, 2);
  EXPECT_EQ(other.identity, "/etc/keys/cluster");
  EXPECT_EQ(other.reached_at(), "192.168.7.1");
  EXPECT_THAT(other.options, testing::ElementsAre("StrictHostKeyChecking=no"));
}

TEST(Hosts, MistakesHaveAPlace) {
  EXPECT_THAT(said("host: a"), HasSubstr("must be a list of hosts"));
  EXPECT_THAT(said(""), HasSubstr("must be a list of hosts"));
  EXPECT_THAT(said("- workers: 2"), HasSubstr("/etc/hosts.yaml:1:3"));
  EXPECT_THAT(said("- { host: a, wrokers: 2 }"), HasSubstr("'workers'"));
  EXPECT_THAT(said("- { host: a, workers: 0 }"), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(said("- { host: a, port: 70000 }"), HasSubstr("65535"));
  EXPECT_THAT(said("- { host: a, options: x }"), HasSubstr("options must be a list"));
}

TEST(Hosts, NobodySneaksAnOptionIntoSsh) {
  EXPECT_THAT(said("- -oProxyCommand=evil"), HasSubstr("must not begin with '-'"));
  EXPECT_THAT(said("- { host: a, user: -oProxyCommand=evil }"),
              HasSubstr("must not begin with '-'"));
}

}  // namespace
}  // namespace muster::launch
