#include "muster/ps/net/control.h"

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

ServerEntry entry(const std::string& id, bool ready) {
  ServerEntry made;
  made.key = {id, 1};
  made.ready = ready;
  made.address = id + ":1";
  made.process = 5;
  made.host = id;
  return made;
}

Beat beat() {
  Beat made;
  made.asked = 123;
  auto& heartbeat = made.heartbeat;
  heartbeat.key = {"a", 7};
  heartbeat.entered = 4;
  heartbeat.complete = true;
  heartbeat.address = "host:1";
  heartbeat.process = 6;
  heartbeat.host = "host";
  heartbeat.rows = 1000;
  heartbeat.unreachable = {{{"b", 2}, std::chrono::seconds(3)}};
  return made;
}

ServersStatus status() {
  ServerStatus one;
  one.key = {"a", 7};
  one.standing = ServerStatus::Standing::kJoining;
  one.host = "host";
  one.address = "host:1";
  one.process = 6;
  one.entered = 4;
  one.rows = 1000;
  one.heard_ago = std::chrono::milliseconds(40);
  one.unreachable = {"b", "c"};
  one.reason = "why";
  return {5, 2, 2, {std::move(one)}};
}

std::vector<ControlMessage> examples() {
  ServerMap map;
  map.epoch = 5;
  map.servers = {entry("a", true), entry("b", false)};
  map.away = {{"c", "far"}};
  TablesSetup setup;
  setup.tables.resize(2);
  setup.tables[1].id = 1;
  setup.tables[0].width = setup.tables[1].width = 3;
  setup.tables[1].name = "items";
  setup.tables[1].optimizer.rule = RowRule::kFtrl;
  setup.tables[1].admission = {3, 0.5};
  setup.tables[1].eviction = {.age = 9, .most = 70, .every = 5};
  BeatAnswer answer;
  answer.reply = {HeartbeatReply::Standing::kMember, std::chrono::seconds(1), {map, map}, "why"};
  answer.asked = 9;
  std::vector<ControlMessage> all;
  all.emplace_back(Hello{true, {"a", 7}});
  all.emplace_back(Hello{false, {"", 8}});
  all.emplace_back(setup);
  all.emplace_back(beat());
  all.emplace_back(answer);
  all.emplace_back(NewMap{map});
  all.emplace_back(AskStatus{});
  all.emplace_back(status());
  return all;
}

TEST(PsControl, WhatIsWrittenIsRead) {
  for (const auto& message : examples()) {
    const std::string bytes = encode_control(message);
    const auto back = decode_control(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode_control(*back), bytes);
  }
}

TEST(PsControl, WhichRowsComeAndGoIsPartOfTheSetup) {
  const auto back = decode_control(encode_control(examples()[2]));
  ASSERT_TRUE(back.ok());
  const TableOptions& table = std::get<TablesSetup>(*back).tables[1];
  EXPECT_EQ(table.admission.sights, 3);
  EXPECT_EQ(table.admission.probability, 0.5);
  EXPECT_EQ(table.eviction.age, 9U);
  EXPECT_EQ(table.eviction.most, 70U);
  EXPECT_EQ(table.eviction.every, 5U);
}

TEST(PsControl, WhatIsDamagedIsRefused) {
  for (const auto& message : examples()) {
    std::string bytes = encode_control(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_control(std::string_view(bytes).substr(0, size)).ok()) << size;
    }
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_FALSE(decode_control(bytes).ok()) << bit;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
  }
}

TEST(PsControl, ASetupThatCannotBeServedIsRefused) {
  TablesSetup setup;
  EXPECT_FALSE(check(setup).ok()) << "no table";
  setup.tables.resize(1);
  setup.tables[0].width = 4;
  EXPECT_TRUE(check(setup).ok());
  setup.copies = 3;
  EXPECT_FALSE(check(setup).ok());
  setup.copies = 2;
  setup.shards = 0;
  EXPECT_FALSE(check(setup).ok());
  setup.shards = 16;
  setup.tables[0].id = 1;
  EXPECT_FALSE(check(setup).ok());
}

TEST(PsControl, TheSetupOfAnotherJobIsRefused) {
  const auto setup = std::get<TablesSetup>(examples()[2]);
  EXPECT_TRUE(check_same(setup, setup, "host:1").ok());
  const auto refused = [&](const TablesSetup& other) {
    const auto same = check_same(setup, other, "host:1");
    if (same.ok()) return false;
    EXPECT_EQ(same.error().kind(), ErrorKind::kRefused);
    EXPECT_NE(same.error().message().find("host:1 is that of another job"), std::string::npos);
    return true;
  };
  auto other = setup;
  other.tables[1].seed = 8;
  EXPECT_TRUE(refused(other));
  other = setup;
  other.tables[0].optimizer.lr *= 2;
  EXPECT_TRUE(refused(other));
  other = setup;
  other.tables[0].optimizer.eps *= 2;
  EXPECT_TRUE(refused(other));
  other = setup;
  other.shards += 1;
  EXPECT_TRUE(refused(other));
}

TEST(PsControl, AnotherVersionIsNamed) {
  std::string bytes = encode_control(examples()[0]);
  bytes[12] = 3;
  const auto back = decode_control(bytes);
  ASSERT_FALSE(back.ok());
  EXPECT_NE(back.error().message().find("version 3"), std::string::npos) << back.error().message();
}

}  // namespace
}  // namespace muster::ps
