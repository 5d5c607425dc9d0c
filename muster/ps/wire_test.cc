#include "muster/ps/wire.h"

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

Bytes text(const std::string& bytes) { return std::make_shared<const std::string>(bytes); }

std::vector<WireMessage> examples() {
  const auto shard = [](auto what) { return ShardMessage{3, 1000, std::move(what)}; };
  OrderView order{40, 41, 42, 43, 44, 45, 46, 47, 48, {}, {}};
  order.ordered = {{49, 50}, {51, -52}};
  order.results = {{0.5, 53, 54}};
  return {shard(Forward{1, 2, {3, 4, text("a push")}}),
          shard(Forward{1, 2, {3, 4, text("")}}),
          shard(Confirm{5, 6}),
          shard(Ask{7, 8, 9, true}),
          shard(Ask{7, 8, 9, false}),
          shard(Copy{10, text("a shard")}),
          shard(Copy{10, text("")}),
          shard(Copy{10, nullptr}),
          shard(Release{}),
          PushRequest{4, 11, {12, 13, text("another")}},
          PushAnswer{5, 14, 15, PushVerdict::kGap, 16, "why"},
          ReadRequest{6, 17, 18, 19, 40, true, {20, 21}},
          ReadRequest{6, 17, 18, 19, -1, false, {}},
          ReadAnswer{7, 22, 23, Served::kYes, 24, {0.5F, -1.0F, 2.0F}},
          ReadAnswer{7, 22, 23, Served::kLost, -1, {}},
          WholeRequest{8, 25, 26, 27, true},
          WholeAnswer{9, 28, 29, Served::kYes, 32, {30, 31}, "rows"},
          WholeAnswer{9, 28, 29, Served::kNo, 0, {}, ""},
          OrderRequest{10, 33, 34, 35, 36, true},
          OrderRequest{10, 33, 34, 35, -1, false},
          OrderAnswer{11, 37, 38, Served::kYes, 39, order},
          OrderAnswer{11, 37, 38, Served::kLost, 0, {}}};
}

TEST(PsWire, WhatIsWrittenIsRead) {
  for (const auto& message : examples()) {
    const std::string bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  const auto back = decode(encode(examples()[0]));
  const auto& forward = std::get<Forward>(std::get<ShardMessage>(*back).what);
  EXPECT_EQ(forward.question, 1U);
  EXPECT_EQ(forward.place, 2U);
  EXPECT_EQ(forward.push.client, 3U);
  EXPECT_EQ(forward.push.number, 4U);
  EXPECT_EQ(*forward.push.bytes, "a push");
}

TEST(PsWire, AnyFlippedBitIsNoticed) {
  for (const auto& message : examples()) {
    std::string bytes = encode(message);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_FALSE(decode(bytes).ok()) << bit;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
  }
}

TEST(PsWire, WhatIsCutShortOrTooLongIsRefused) {
  for (const auto& message : examples()) {
    const std::string bytes = encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(std::string_view(bytes).substr(0, size)).ok()) << size;
    }
    EXPECT_FALSE(decode(bytes + "x").ok());
  }
}

TEST(PsWire, AnotherVersionIsNamed) {
  std::string bytes = encode(examples()[2]);
  bytes[12] = 9;
  const auto back = decode(bytes);
  ASSERT_FALSE(back.ok());
  EXPECT_NE(back.error().message().find("version 9"), std::string::npos) << back.error().message();
}

TEST(PsWire, AHeaderIsSmallBesidesThePayload) {
  const std::string payload(4096, 'x');
  const auto bytes = encode(PushRequest{0, 1, {2, 3, text(payload)}});
  EXPECT_LT(static_cast<double>(bytes.size()), 1.02 * static_cast<double>(payload.size()));
}

}  // namespace
}  // namespace muster::ps
