#include "muster/roster/wire/message_bytes.h"

#include <grpcpp/grpcpp.h>

#include <vector>

#include <gtest/gtest.h>

namespace muster::roster::wire {
namespace {

std::shared_ptr<const ToWorker> roster(RosterNumber number) {
  RosterDiff diff;
  diff.number = number;
  return std::make_shared<const ToWorker>(diff);
}

TEST(MessageBytesTest, WhatManyAreToldIsMadeOnce) {
  MessageBytes bytes;
  const auto message = roster(1);
  const std::vector others(2000, message);
  const grpc::ByteBuffer first = bytes.of(message);
  for (const auto& other : others) EXPECT_EQ(bytes.of(other).Length(), first.Length());
  EXPECT_EQ(bytes.made(), 1);
}

TEST(MessageBytesTest, DifferentMessagesAreMadeEach) {
  MessageBytes bytes;
  const auto one = roster(1);
  const auto other = roster(1);
  (void)bytes.of(one);
  (void)bytes.of(other);
  EXPECT_EQ(bytes.made(), 2);
}

// Those that are kept are alive, so that another message cannot take the place of one in memory.
TEST(MessageBytesTest, KeepsOnlyFewAndNoneThatIsToldOnce) {
  MessageBytes bytes;
  std::weak_ptr<const ToWorker> once;
  {
    const auto message = roster(1);
    once = message;
    (void)bytes.of(message);
  }
  EXPECT_TRUE(once.expired());
  std::weak_ptr<const ToWorker> old;
  for (int i = 0; i < 20; ++i) {
    const auto message = roster(1);
    const std::vector<std::shared_ptr<const ToWorker>> another_session = {message};
    if (i == 0) old = message;
    (void)bytes.of(message);
    EXPECT_TRUE(i > 0 || !old.expired());
  }
  EXPECT_TRUE(old.expired());
}

}  // namespace
}  // namespace muster::roster::wire
