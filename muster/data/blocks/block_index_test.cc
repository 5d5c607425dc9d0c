#include "muster/data/blocks/block_index.h"

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/blocks/blocks_testing.h"

namespace muster::data {
namespace {

using testing::make_index;

BlockIndex some_index() {
  BlockIndex index = make_index({5, 1, 7, 300, 2});
  index.format = "numbers";
  index.about = "columns: a, b";
  index.objects[0].version = "etag-17";
  index.objects.push_back({.name = "unused", .size = 0, .version = ""});
  index.blocks[1].hash = {1, 2};
  return index;
}

BlockIndex index_with_notes() {
  BlockIndex index = some_index();
  index.notes = {"a", "", std::string(1000, 'n'), "d", "e"};
  return index;
}

TEST(BlockIndexTest, FindsTheBlockOfASample) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, Purpose::kUser);
    std::vector<uint32_t> counts(1 + random.below(40));
    // Alike, or of very different sizes: where the first guess is far off.
    const uint64_t most = seed % 2 == 0 ? 4 : 1000;
    for (auto& count : counts) {
      count = static_cast<uint32_t>(1 + random.below(random.below(2) == 0 ? most : 2));
    }
    const BlockIndex index = make_index(counts);
    size_t block = 0;
    for (uint64_t sample = 0; sample < index.samples(); ++sample) {
      if (sample == index.blocks[block].first + index.blocks[block].count) ++block;
      ASSERT_EQ(index.block_of(sample), block) << "seed " << seed << ", sample " << sample;
    }
  }
}

TEST(BlockIndexTest, IsReadAsItWasWritten) {
  for (const BlockIndex& index :
       {some_index(), index_with_notes(), make_index({1}), BlockIndex{}}) {
    const auto read = load_index(save_index(index));
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(*read, index);
    EXPECT_EQ(read->hash(), index.hash());
  }
}

TEST(BlockIndexTest, RefusesEveryDamage) {
  for (const BlockIndex& index : {some_index(), index_with_notes()}) {
    const std::string good = save_index(index);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x41);
      EXPECT_FALSE(load_index(bad).ok()) << "byte " << i;
      EXPECT_FALSE(load_index(std::string_view(good).substr(0, i)).ok()) << "cut at " << i;
    }
    EXPECT_FALSE(load_index(good + '\0').ok());
  }
}

TEST(BlockIndexTest, NotesArePartOfTheHash) {
  BlockIndex index = index_with_notes();
  EXPECT_NE(index.hash(), some_index().hash());
  EXPECT_EQ(index.note(3), "d");
  EXPECT_EQ(some_index().note(3), "");
  index.notes[3] = "D";
  EXPECT_NE(index.hash(), index_with_notes().hash());
}

// With the right hash at its end, so that what is behind it is looked at.
Result<BlockIndex> load_changed(const BlockIndex& index) { return load_index(save_index(index)); }

TEST(BlockIndexTest, RefusesWhatCannotBe) {
  BlockIndex index = some_index();
  index.blocks[2].object = 2;
  EXPECT_NE(load_changed(index).error().message().find("in no object"), std::string::npos);
  index = some_index();
  index.blocks[2].length = index.objects[0].size;
  EXPECT_NE(load_changed(index).error().message().find("behind its object"), std::string::npos);
  index.blocks[2].offset = ~uint64_t{0};
  EXPECT_NE(load_changed(index).error().message().find("behind its object"), std::string::npos);
  index = some_index();
  index.blocks[2].count = 0;
  EXPECT_NE(load_changed(index).error().message().find("no samples"), std::string::npos);
}

TEST(BlockIndexTest, SaysThatAnotherProgramWroteIt) {
  std::string newer = save_index(some_index());
  newer[8] = 3;
  const auto read = load_index(newer);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kData);
  EXPECT_NE(read.error().message().find("version 3"), std::string::npos);
  EXPECT_NE(load_index("PAR1").error().message().find("not an index"), std::string::npos);
}

TEST(BlockIndexTest, TheHashIsOfTheSamplesAndNotOfTheirPlace) {
  const BlockIndex index = some_index();
  BlockIndex moved = index;
  moved.objects[0].name = "elsewhere";
  moved.objects[0].version = "another";
  moved.blocks[1].offset += 1;  // its hash is known
  EXPECT_EQ(moved.hash(), index.hash());
  const auto differs = [&](auto change) {
    BlockIndex other = index;
    change(other);
    return other.hash() != index.hash();
  };
  EXPECT_TRUE(differs([](BlockIndex& i) { i.format = "other"; }));
  EXPECT_TRUE(differs([](BlockIndex& i) { i.about = ""; }));
  EXPECT_TRUE(differs([](BlockIndex& i) { i.blocks[1].hash.low = 3; }));
  EXPECT_TRUE(differs([](BlockIndex& i) { i.blocks[1].count = 2; }));
  EXPECT_TRUE(differs([](BlockIndex& i) { i.blocks[0].offset += 1; }));
  EXPECT_TRUE(differs([](BlockIndex& i) { i.blocks.pop_back(); }));
}

TEST(BlockIndexTest, NamesABlock) {
  EXPECT_EQ(make_index({5, 1}).describe(1), "block 1 ('object-0', 8 bytes from 40 on)");
}

// What an index of this version looks like: programs of later versions must read it.
TEST(BlockIndexTest, NeverChanges) {
  const std::string bytes = save_index(some_index());
  EXPECT_EQ(hash128(std::as_bytes(std::span(bytes))).hex(), "4c94298f03d959a65c54913f6aeda317");
  EXPECT_EQ(some_index().hash().hex(), "fade8eac1cb296ed8d1ae7e6b57983fb");
}

}  // namespace
}  // namespace muster::data
