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
  servers: 3
  server: /opt/muster/bin/muster-server
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
  EXPECT_EQ((*hosts)[0].servers, -1);
  EXPECT_EQ((*hosts)[0].reached_at(), "10.0.0.2");
  const Host& other = (*hosts)[1];
  EXPECT_EQ(other.workers, 2);
  EXPECT_EQ(other.servers, 3);
  EXPECT_EQ(other.server, "/opt/muster/bin/muster-server");
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
  EXPECT_THAT(said("- { host: a, workers: 0, servers: 0 }"), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(said("- { host: a, servers: -2 }"), HasSubstr("from 0 to 1024"));
  EXPECT_EQ(said("- { host: a, workers: 0, servers: 1 }"), "nothing");
  EXPECT_THAT(said("- { host: a, port: 70000 }"), HasSubstr("65535"));
  EXPECT_THAT(said("- { host: a, options: x }"), HasSubstr("options must be a list"));
}

std::vector<Host> with_servers(const std::vector<int64_t>& servers) {
  std::vector<Host> hosts;
  for (const int64_t count : servers) hosts.emplace_back().servers = count;
  return hosts;
}

TEST(Hosts, ServersAreSpreadOverTheHostsThatSayNothing) {
  using testing::ElementsAre;
  EXPECT_THAT(*spread_servers(with_servers({-1, -1}), 4), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(*spread_servers(with_servers({-1, -1, -1}), 2), ElementsAre(0, 1));
  EXPECT_THAT(*spread_servers(with_servers({0, -1, 2, -1}), 5), ElementsAre(1, 2, 3, 1, 2));
  EXPECT_THAT(*spread_servers(with_servers({2, 1}), 3), ElementsAre(0, 1, 0));
  EXPECT_THAT(*spread_servers(with_servers({-1}), 0), ElementsAre());
}

TEST(Hosts, AnotherNumberOfServersThanTheJobHasIsRefused) {
  const auto more = spread_servers(with_servers({2, 2}), 3);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message(), HasSubstr("have 4 parameter servers"));
  const auto fewer = spread_servers(with_servers({1, 1}), 3);
  ASSERT_FALSE(fewer.ok());
  EXPECT_THAT(fewer.error().message(), HasSubstr("tables.servers is 3"));
}

TEST(Hosts, NobodySneaksAnOptionIntoSsh) {
  EXPECT_THAT(said("- -oProxyCommand=evil"), HasSubstr("must not begin with '-'"));
  EXPECT_THAT(said("- { host: a, user: -oProxyCommand=evil }"),
              HasSubstr("must not begin with '-'"));
}

}  // namespace
}  // namespace muster::launch
