#include "muster/ps/wire.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

Bytes text(const std::string& bytes) { return Bytes(bytes); }
std::string encoded(const WireMessage& message) { return encode(message).flat(); }
Result<WireMessage> decoded(const std::string& bytes) { return decode(Bytes(bytes)); }
Bytes floats(std::vector<float> values) {
  return Bytes::filled<float>(values.size(), [&](float* to) { std::ranges::copy(values, to); });
}

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
          ReadAnswer{7, 22, 23, Served::kYes, 24, floats({0.5F, -1.0F, 2.0F})},
          ReadAnswer{7, 22, 23, Served::kLost, -1, {}},
          ReadAnswer{7, 22, 23, Served::kTooLarge, 0, {}},
          WholeRequest{8, 25, 26, 28, 27, true},
          WholeAnswer{9, 28, 29, Served::kYes, 32, 55, {30, 31}, text("rows")},
          WholeAnswer{9, 28, 29, Served::kNo, 0, 0, {}, {}},
          OrderRequest{10, 33, 34, 35, 36, true},
          OrderRequest{10, 33, 34, 35, -1, false},
          OrderAnswer{11, 37, 38, Served::kYes, 39, order},
          OrderAnswer{11, 37, 38, Served::kLost, 0, {}}};
}

TEST(PsWire, WhatIsWrittenIsRead) {
  for (const auto& message : examples()) {
    const std::string bytes = encoded(message);
    const auto back = decoded(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encoded(*back), bytes);
  }
  const auto back = decoded(encoded(examples()[0]));
  const auto& forward = std::get<Forward>(std::get<ShardMessage>(*back).what);
  EXPECT_EQ(forward.question, 1U);
  EXPECT_EQ(forward.place, 2U);
  EXPECT_EQ(forward.push.client, 3U);
  EXPECT_EQ(forward.push.number, 4U);
  EXPECT_EQ(*forward.push.bytes, "a push");
}

TEST(PsWire, AnyFlippedBitIsNoticed) {
  for (const auto& message : examples()) {
    std::string bytes = encoded(message);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_FALSE(decoded(bytes).ok()) << bit;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
  }
}

TEST(PsWire, WhatIsCutShortOrTooLongIsRefused) {
  for (const auto& message : examples()) {
    const std::string bytes = encoded(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decoded(bytes.substr(0, size)).ok()) << size;
    }
    EXPECT_FALSE(decoded(bytes + "x").ok());
  }
}

TEST(PsWire, WhatIsCarriedIsNotCopied) {
  const Bytes push = text("a push");
  const Packet packet = encode(PushRequest{4, 11, {12, 13, push}});
  EXPECT_EQ(packet.body->data(), push->data());

  const Bytes bytes(packet.flat());
  const auto back = decode(bytes);
  ASSERT_TRUE(back.ok());
  const auto& got = std::get<PushRequest>(*back).push.bytes;
  EXPECT_EQ(*got, "a push");
  EXPECT_EQ(got->data(), bytes->data() + packet.head.size());
}

TEST(PsWire, RowsGoWhereTheyAreWanted) {
  std::vector<float> to(8, 0);
  const std::vector<uint32_t> places = {3, 0};
  EXPECT_TRUE(put_rows(floats({1, 2, 3, 4}), places, 2, to.data()));
  EXPECT_EQ(to, (std::vector<float>{3, 4, 0, 0, 0, 0, 1, 2}));
  EXPECT_FALSE(put_rows(floats({1, 2, 3}), places, 2, to.data()));
  EXPECT_FALSE(put_rows(floats({1, 2, 3, 4, 5, 6}), places, 2, to.data()));
}

TEST(PsWire, AnotherVersionIsNamed) {
  std::string bytes = encoded(examples()[2]);
  bytes[12] = 9;
  const auto back = decoded(bytes);
  ASSERT_FALSE(back.ok());
  EXPECT_NE(back.error().message().find("version 9"), std::string::npos) << back.error().message();
}

TEST(PsWire, AHeaderIsSmallBesidesThePayload) {
  const std::string payload(4096, 'x');
  const auto bytes = encoded(PushRequest{0, 1, {2, 3, text(payload)}});
  EXPECT_LT(static_cast<double>(bytes.size()), 1.02 * static_cast<double>(payload.size()));
}

}  // namespace
}  // namespace muster::ps
