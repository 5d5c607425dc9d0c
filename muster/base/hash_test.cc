#include "muster/base/hash.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Hashes are written into manifests and reports: a new library must not change them. XXH3's
// published values for no input, and ours for a short one.
TEST(Hash, ValuesAreForever) {
  EXPECT_EQ(hash64("", 0), 0x2d06800538d394c2ULL);
  EXPECT_EQ(hash128({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128(bytes("muster")).hex(), "90d256a5656efe7ed3172c6c7a83b39c");
}

TEST(Hash, PiecesGiveTheHashOfTheWhole) {
  std::string data(100000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 3);
  for (const size_t piece : {1UL, 7UL, 240UL, 241UL, 4096UL, 100000UL}) {
    Hasher hasher;
    for (size_t at = 0; at < data.size(); at += piece) {
      hasher.add(data.data() + at, std::min(piece, data.size() - at));
    }
    EXPECT_EQ(hasher.finish(), hash128(bytes(data))) << piece;
    EXPECT_EQ(hasher.finish(), hash128(bytes(data))) << "finish() changes nothing";
  }
}

TEST(Hash, EveryBitCounts) {
  std::string data(300, 'x');
  std::set<Hash128> seen{hash128(bytes(data))};
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    std::string flipped = data;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    seen.insert(hash128(bytes(flipped)));
  }
  EXPECT_EQ(seen.size(), data.size() * 8 + 1);
}

TEST(Hash, SeedsAndMovesWork) {
  EXPECT_NE(hash64("a", 1, 0), hash64("a", 1, 1));
  Hasher first;
  first.add("ab", 2);
  Hasher second = std::move(first);
  second.add("c", 1);
  EXPECT_EQ(second.finish(), hash128(bytes("abc")));
  EXPECT_EQ((Hash128{1, 0xab}.hex()), "000000000000000100000000000000ab");
}

}  // namespace
}  // namespace muster
