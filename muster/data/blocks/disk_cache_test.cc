#include "muster/data/blocks/disk_cache.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"
#include "muster/data/blocks/blocks_testing.h"
#include "muster/data/data_testing.h"

namespace muster::data {
namespace {

using testing::TempDir;

const Hash128 kKey = {0xab00000000000000, 17};
const Hash128 kOther = {0xcd00000000000000, 18};
constexpr std::string_view kContents = "the bytes of a block";

std::string path_of(const TempDir& dir, const Hash128& key) {
  return dir.path("cache/" + key.hex().substr(0, 2) + "/" + key.hex());
}

class DiskCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<DiskCache> open(uint64_t capacity = DiskCache::kUnlimited,
                                  Duration pause = DiskCache::kPause) {
    return DiskCache::open(*fs_, dir_.path("cache"), capacity, pause);
  }
  std::unique_ptr<FileSystem> fs_ = posix_file_system();
  TempDir dir_;
};

TEST_F(DiskCacheTest, KeepsBlocksAlsoForTheNextProcess) {
  {
    const auto cache = open();
    EXPECT_EQ(cache->read(kKey, kContents.size()), std::nullopt);
    cache->write(kKey, kContents);
    cache->write(kOther, "");
    EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
  }
  const auto cache = open();
  EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
  EXPECT_EQ(cache->read(kOther, 0), "");
  EXPECT_EQ(cache->counters().hits, 2U);
  EXPECT_EQ(cache->counters().bytes, kContents.size() + 32);
}

TEST_F(DiskCacheTest, NoticesDamageAndRemovesIt) {
  const auto cache = open();
  cache->write(kKey, kContents);
  const std::string good = *fs_->read(path_of(dir_, kKey));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    (void)dir_.write("cache/ab/" + kKey.hex(), i % 2 == 0 ? bad : good.substr(0, i));
    EXPECT_EQ(cache->read(kKey, kContents.size()), std::nullopt) << i;
    EXPECT_FALSE(fs_->exists(path_of(dir_, kKey)));
  }
  EXPECT_EQ(cache->counters().damaged, good.size());
  cache->write(kKey, kContents);
  EXPECT_EQ(cache->read(kKey, kContents.size() + 1), std::nullopt) << "another length";
}

TEST_F(DiskCacheTest, AFileUnderAnotherNameIsDamage) {
  const auto cache = open();
  const Hash128 own = hash128(std::as_bytes(std::span(kContents)));
  for (const Hash128& key : {kKey, own}) {
    cache->write(key, kContents);
    cache->write(kOther, kContents);
    std::filesystem::copy_file(path_of(dir_, key), path_of(dir_, kOther),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(cache->read(kOther, kContents.size()), std::nullopt);
    EXPECT_EQ(cache->read(key, kContents.size()), kContents);
  }
}

TEST_F(DiskCacheTest, RemovesTheTemporaryFilesOfKilledWorkers) {
  open()->write(kKey, kContents);
  const std::string old = dir_.write("cache/ab/" + kKey.hex() + ".17-0", "torn");
  const std::string recent = dir_.write("cache/ab/" + kKey.hex() + ".18-0", "being written");
  const std::string mine = dir_.write("cache/ab/notes.txt", "of the user");
  for (const auto& path : {old, mine}) {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  const auto cache = open();
  EXPECT_FALSE(fs_->exists(old));
  EXPECT_TRUE(fs_->exists(recent));
  EXPECT_TRUE(fs_->exists(mine));
  EXPECT_EQ(cache->counters().bytes, kContents.size() + 16 + 13 + 11);
  EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
}

TEST_F(DiskCacheTest, MayBeDeletedAtAnyTime) {
  const auto cache = open();
  cache->write(kKey, kContents);
  std::filesystem::remove_all(dir_.path("cache"));
  EXPECT_EQ(cache->read(kKey, kContents.size()), std::nullopt);
  cache->write(kKey, kContents);
  EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
  EXPECT_EQ(cache->problem(), "");
}

TEST_F(DiskCacheTest, FillsUpAndKeeps) {
  const auto cache = open(2 * (kContents.size() + 16) + 20);
  cache->write(kKey, kContents);
  cache->write(kOther, kContents);
  cache->write({1, 1}, kContents);
  EXPECT_EQ(cache->read({1, 1}, kContents.size()), std::nullopt);
  cache->write({1, 2}, "tiny");
  EXPECT_EQ(cache->read({1, 2}, 4), "tiny");
  EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
  EXPECT_EQ(cache->problem(), "");
  EXPECT_EQ(open(10)->read(kKey, kContents.size()), kContents) << "what is there is used";
}

TEST_F(DiskCacheTest, FillsAgainAfterItsFilesWereDeleted) {
  constexpr uint64_t kCapacity = 2 * (kContents.size() + 16);
  for (const bool waits : {false, true}) {
    const auto cache = open(kCapacity, waits ? DiskCache::kPause : Duration{});
    cache->write(kKey, kContents);
    cache->write(kOther, kContents);
    cache->write({1, 1}, kContents);
    EXPECT_EQ(cache->read({1, 1}, kContents.size()), std::nullopt) << "it is full";
    std::filesystem::remove_all(dir_.path("cache"));
    cache->write({1, 1}, kContents);
    EXPECT_EQ(cache->read({1, 1}, kContents.size()).has_value(), !waits);
    EXPECT_EQ(cache->counters().bytes, waits ? kCapacity : kCapacity / 2);
    EXPECT_EQ(cache->problem(), "");
    std::filesystem::remove_all(dir_.path("cache"));
  }
}

TEST_F(DiskCacheTest, KeepsBlocksAgainOnceTheDiskWorks) {
  const auto cache = open(DiskCache::kUnlimited, Duration{});
  std::filesystem::remove_all(dir_.path("cache"));
  (void)dir_.write("cache", "not a directory");
  cache->write(kKey, kContents);
  EXPECT_NE(cache->problem(), "");
  std::filesystem::remove(dir_.path("cache"));
  cache->write(kKey, kContents);
  EXPECT_EQ(cache->read(kKey, kContents.size()), kContents);
  EXPECT_EQ(cache->problem(), "");
}

TEST_F(DiskCacheTest, ADirectoryThatCannotBeMadeIsNoErrorAndTriedAgain) {
  for (const bool waits : {true, false}) {
    (void)dir_.write("cache", "not a directory");
    const auto cache = open(DiskCache::kUnlimited, waits ? DiskCache::kPause : Duration{});
    EXPECT_NE(cache->problem(), "");
    EXPECT_EQ(cache->read(kKey, kContents.size()), std::nullopt);
    std::filesystem::remove(dir_.path("cache"));
    cache->write(kKey, kContents);
    EXPECT_EQ(cache->read(kKey, kContents.size()).has_value(), !waits);
    EXPECT_EQ(cache->problem().empty(), !waits);
  }
}

// As those of the training and test data of four workers.
TEST_F(DiskCacheTest, ManyThatShareADirectoryKeepItsCapacity) {
  constexpr uint64_t kBlock = kContents.size() + 16;
  constexpr uint64_t kCapacity = 100 * kBlock;
  std::vector<std::unique_ptr<DiskCache>> caches;
  for (int i = 0; i < 8; ++i) caches.push_back(open(kCapacity));
  for (uint64_t block = 0; block < 200; ++block) {
    for (uint64_t i = 0; i < caches.size(); ++i) caches[i]->write({i, block}, kContents);
  }
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_.path("cache"))) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LE(bytes, kCapacity);
  EXPECT_GT(bytes, kCapacity * 9 / 10);
}

TEST(DiskCacheFaultTest, NoErrorOfTheDiskIsAnError) {
  int64_t operations = 0;
  for (int64_t n = 0; n <= operations; ++n) {
    for (const Fault fault : {Fault::kOnce, Fault::kDiskFull}) {
      FaultInjectionFileSystem fs;
      const auto cache = DiskCache::open(fs, "/cache");
      const int64_t before = fs.operations();
      if (n > 0) fs.fail_at(before + n - 1, fault);
      cache->write(kKey, kContents);
      if (n == 0) operations = fs.operations() - before;
      const auto read = cache->read(kKey, kContents.size());
      EXPECT_TRUE(!read || *read == kContents);
      EXPECT_EQ(read.has_value(), cache->problem().empty());
    }
  }
  EXPECT_GE(operations, 4);
}

TEST(DiskCacheKeyTest, IsTheHashOrThePlace) {
  BlockIndex index = testing::make_index({2, 3});
  const Hash128 place = DiskCache::key_of(index, 0);
  EXPECT_NE(place, DiskCache::key_of(index, 1));
  index.objects[0].version = "2";
  EXPECT_NE(place, DiskCache::key_of(index, 0)) << "the object was changed";
  index.blocks[0].hash = {1, 2};
  EXPECT_EQ(DiskCache::key_of(index, 0), (Hash128{1, 2}));
}

}  // namespace
}  // namespace muster::data
