#include "muster/ps/rows.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace muster::ps {
namespace {

TEST(Slabs, PiecesDoNotOverlapAndAreZero) {
  Slabs slabs;
  std::mt19937 random(1);
  std::map<std::byte*, size_t> pieces;
  for (int i = 0; i < 3000; ++i) {
    if (!pieces.empty() && random() % 3 == 0) {
      auto one = pieces.begin();
      std::advance(one, random() % pieces.size());
      slabs.free(one->first, one->second);
      pieces.erase(one);
      continue;
    }
    const size_t bytes = Slabs::kSmallest << (random() % (random() % 20 == 0 ? 13 : 6));
    std::byte* const piece = slabs.allocate(bytes);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % Slabs::kSmallest, 0u);
    ASSERT_TRUE(std::all_of(piece, piece + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(piece, bytes, std::byte{255});
    const auto next = pieces.lower_bound(piece);
    if (next != pieces.end()) {
      ASSERT_LE(piece + bytes, next->first);
    }
    if (next != pieces.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, piece);
    }
    pieces[piece] = bytes;
  }
  size_t used = 0;
  for (const auto& [piece, bytes] : pieces) used += bytes;
  EXPECT_EQ(slabs.used(), used);
  EXPECT_GE(slabs.reserved(), used);
}

// Whatever comes and goes, all that is there is found, and nothing else.
TEST(Rows, AreFoundWhateverComesAndGoes) {
  for (const size_t values : {0, 1, 9, 48, 4096, 30000}) {
    Slabs slabs;
    Rows rows(values, slabs);
    std::map<uint64_t, Row*> expected;
    std::mt19937_64 random(values);
    const int rounds = values > 1000 ? 400 : 20'000;
    for (int i = 0; i < rounds; ++i) {
      // Few different keys, so that they come again; neighbours, and keys that differ above.
      const uint64_t key = (random() % 3000) << (random() % 2 == 0 ? 0 : 50);
      Row* const row = rows.find(key);
      const auto known = expected.find(key);
      ASSERT_EQ(row, known == expected.end() ? nullptr : known->second) << key;
      if (row == nullptr) {
        Row* const made = rows.insert(key);
        ASSERT_NE(made, nullptr);
        ASSERT_TRUE(
            std::all_of(made->values(), made->values() + values, [](float v) { return v == 0; }));
        std::fill_n(made->values(), values, static_cast<float>(key % 1000));
        expected[key] = made;
      } else if (random() % 2 == 0) {
        ASSERT_TRUE(std::all_of(row->values(), row->values() + values,
                                [&](float v) { return v == static_cast<float>(key % 1000); }));
        rows.erase(row);
        expected.erase(known);
      }
      ASSERT_EQ(rows.size(), expected.size());
    }
    std::vector<uint64_t> keys;
    for (const auto& [key, row] : expected) keys.push_back(key);
    std::vector<uint64_t> visited;
    rows.for_each([&](const Row& row) { visited.push_back(row.key); });
    std::ranges::sort(visited);
    EXPECT_EQ(visited, keys);
    keys.push_back(1u << 20);  // not there
    std::vector<Row*> found(keys.size());
    rows.find(keys, found);
    for (size_t i = 0; i + 1 < keys.size(); ++i) EXPECT_EQ(found[i], expected[keys[i]]);
    EXPECT_EQ(found.back(), nullptr);
    rows.clear();
    EXPECT_EQ(slabs.used(), 0u);
    EXPECT_EQ(rows.find(keys[0]), nullptr);
    EXPECT_NE(rows.insert(keys[0]), nullptr);
  }
}

TEST(Slabs, SayNoAtTheLimitAndUseAgainWhatWasFreed) {
  Slabs slabs(3 * kHugePage);
  std::vector<std::byte*> pieces;
  while (std::byte* const piece = slabs.allocate(kHugePage / 4)) pieces.push_back(piece);
  EXPECT_EQ(pieces.size(), 12u);
  EXPECT_EQ(slabs.allocate(2 * kHugePage), nullptr);
  slabs.free(pieces[5], kHugePage / 4);
  // In small pieces, too.
  for (int i = 0; i < 4; ++i) EXPECT_NE(slabs.allocate(kHugePage / 16), nullptr);
  EXPECT_EQ(slabs.allocate(kHugePage / 16), nullptr);
  EXPECT_EQ(slabs.reserved(), 3 * kHugePage);

  Slabs large(8 * kHugePage);
  std::byte* const piece = large.allocate(8 * kHugePage);
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(large.allocate(Slabs::kSmallest), nullptr);
  large.free(piece, 8 * kHugePage);
  EXPECT_EQ(large.reserved(), 0u);
  EXPECT_NE(large.allocate(Slabs::kSmallest), nullptr);
}

TEST(Rows, ThatDoNotFitAreRefused) {
  Slabs slabs(kHugePage);
  Rows rows(8, slabs);
  uint64_t key = 0;
  while (rows.insert(key) != nullptr) ++key;
  EXPECT_GT(key, 10'000u);
  EXPECT_FALSE(rows.full()) << "it is memory that is missing";
  for (uint64_t k = 0; k < key; ++k) ASSERT_NE(rows.find(k), nullptr);
  rows.erase(rows.find(7));
  EXPECT_NE(rows.insert(key), nullptr);
  Rows moved(std::move(rows));
  EXPECT_EQ(moved.size(), key);
  EXPECT_NE(moved.find(key), nullptr);
}

TEST(Slabs, AtTheLimitPutSmallPiecesTogether) {
  Slabs slabs(kHugePage);
  std::vector<std::byte*> pieces;
  while (std::byte* const piece = slabs.allocate(Slabs::kSmallest)) pieces.push_back(piece);
  ASSERT_EQ(pieces.size(), kHugePage / Slabs::kSmallest);
  std::ranges::shuffle(pieces, std::mt19937(1));
  std::byte* const kept = pieces.back();
  pieces.pop_back();
  for (std::byte* const piece : pieces) slabs.free(piece, Slabs::kSmallest);
  EXPECT_EQ(slabs.allocate(kHugePage), nullptr) << "a part of it is in use";
  EXPECT_NE(slabs.allocate(kHugePage / 2), nullptr);
  EXPECT_NE(slabs.allocate(kHugePage / 4), nullptr);
  slabs.free(kept, Slabs::kSmallest);
  EXPECT_NE(slabs.allocate(kHugePage / 4), nullptr);
  EXPECT_EQ(slabs.used(), kHugePage);
}

TEST(Rows, GoAround) {
  Slabs slabs;
  Rows rows(3, slabs);
  uint32_t place = 0;
  EXPECT_EQ(rows.next(place), nullptr);
  for (uint64_t key = 0; key < 5000; ++key) rows.insert(key);
  for (uint64_t key = 0; key < 5000; ++key) {
    if (key % 3 != 0) rows.erase(rows.find(key));
  }
  std::map<uint64_t, int> seen;
  for (size_t i = 0; i < 2 * rows.size(); ++i) ++seen[rows.next(place)->key];
  EXPECT_EQ(seen.size(), rows.size());
  for (const auto& [key, times] : seen) EXPECT_EQ(times, 2) << key;
}

TEST(Rows, GiveTheirLastPieceBack) {
  Slabs slabs;
  Rows rows(3, slabs);
  std::map<uint64_t, Row*> expected;
  for (uint64_t key = 0; key < 9000; ++key) expected[key] = rows.insert(key);
  std::mt19937 random(2);
  while (rows.pieces() > 1) {
    for (int i = 0; i < 300 && !expected.empty(); ++i) {
      const auto some = expected.lower_bound(random() % 9000);
      if (some == expected.end()) continue;
      rows.erase(some->second);
      expected.erase(some);
    }
    std::vector<Row*> last;
    rows.for_each_in_last_piece([&](Row& row) { last.push_back(&row); });
    for (Row* const row : last) {
      expected.erase(row->key);
      rows.erase(row);
    }
    const size_t before = slabs.used();
    rows.drop_last_piece();
    EXPECT_LT(slabs.used(), before);
    EXPECT_EQ(rows.bytes(), slabs.used());
    // Free places are used again, and none is of the piece that is gone.
    for (int i = 0; i < 20; ++i) {
      const uint64_t key = 100'000 + random();
      if (rows.find(key) == nullptr) expected[key] = rows.insert(key);
    }
    for (const auto& [key, row] : expected) ASSERT_EQ(rows.find(key), row);
    EXPECT_EQ(rows.size(), expected.size());
  }
}

TEST(Rows, CostFewBytesBesidesTheirValues) {
  Slabs slabs;
  Rows rows(9, slabs);  // width 8 with row_adagrad
  constexpr size_t kCount = 1'000'000;
  for (uint64_t key = 0; key < kCount; ++key) ASSERT_NE(rows.insert(key), nullptr);
  const double each = static_cast<double>(slabs.reserved()) / kCount;
  // 16 + 36, rounded to 56; 4 bytes of index for each of 2^21 places.
  EXPECT_LT(each, 56 * 1.03 + 8.5);
}

TEST(Rows, ThatWereReservedTakeTheMemoryOfAnyOthers) {
  for (const size_t count : {size_t{1}, size_t{3072}, size_t{3073}, size_t{50'000}}) {
    Slabs slabs;
    Rows reserved(4, slabs);
    Rows grown(4, slabs);
    reserved.reserve(count);
    const size_t index = reserved.bytes();
    for (uint64_t key = 0; key < count; ++key) {
      ASSERT_NE(reserved.insert(key), nullptr);
      ASSERT_NE(grown.insert(key), nullptr);
    }
    EXPECT_EQ(reserved.bytes(), grown.bytes()) << count;
    EXPECT_LE(index, grown.bytes());
    for (uint64_t key = 0; key < count; ++key) ASSERT_NE(reserved.find(key), nullptr) << key;
  }
}

TEST(Rows, KeysSpreadOverPlacesAndShards) {
  std::vector<int> shards(64);
  for (uint64_t key = 0; key < 64'000; ++key) ++shards[hash_of_key(key << 20) >> 58];
  for (const int count : shards) EXPECT_NEAR(count, 1000, 200);
}

}  // namespace
}  // namespace muster::ps
