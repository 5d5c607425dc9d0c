#include "muster/ps/cold/rocks_rows.h"

#include <signal.h>
#include <sys/resource.h>

#include <map>

#include <gtest/gtest.h>

#include "muster/ps/cold/cold_testing.h"
#include "muster/ps/cold_directory.h"

namespace muster::ps {
namespace {

constexpr ColdPart kPart{.table = 1, .shard = 7, .candidates = false};

std::string value_of(uint64_t key, int version = 0) {
  std::string value = "row " + std::to_string(key) + " " + std::to_string(version) + " ";
  value.resize(100, '.');
  return value;
}

Status put(ColdRows& rows, ColdPart part, uint64_t first, uint64_t count, int version = 0) {
  std::vector<std::string> values;
  std::vector<ColdRow> batch;
  for (uint64_t i = 0; i < count; ++i) values.push_back(value_of(first + i, version));
  for (uint64_t i = 0; i < count; ++i) batch.push_back({first + i, values[i]});
  return rows.put(part, batch);
}

std::map<uint64_t, std::string> all_of(ColdRows& rows, ColdPart part) {
  std::map<uint64_t, std::string> all;
  EXPECT_TRUE(
      rows.scan(part, [&](const ColdRow& row) { all[row.key] = std::string(row.bytes); }).ok());
  return all;
}

TEST(RocksRows, GivesBackWhatWasPut) {
  TestDisk disk;
  ColdRows& rows = disk.rows();
  ASSERT_TRUE(put(rows, kPart, 1000, 500).ok());
  ASSERT_TRUE(put(rows, kPart, 1200, 10, 2).ok());
  ASSERT_TRUE(rows.remove(kPart, std::vector<uint64_t>{1100, 5}).ok());
  const std::vector<uint64_t> keys = {1205, 3, 1100, 1000};
  std::map<size_t, std::string> found;
  const auto note = [&](size_t place, std::string_view bytes) { found[place] = bytes; };
  ASSERT_TRUE(rows.find(kPart, keys, note).ok());
  const std::map<size_t, std::string> expected = {{0, value_of(1205, 2)}, {3, value_of(1000)}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(all_of(rows, kPart).size(), 499u);
}

TEST(RocksRows, PartsAreApart) {
  TestDisk disk;
  ColdRows& rows = disk.rows();
  const ColdPart parts[] = {{1, 7, false}, {1, 7, true}, {1, 8, false}, {2, 7, false}};
  const uint64_t last = ~uint64_t{0};
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(put(rows, parts[i], 0, 20 + i).ok());
    ASSERT_TRUE(put(rows, parts[i], last, 1).ok());
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(all_of(rows, parts[i]).size(), 21 + i);
  ASSERT_TRUE(rows.clear(parts[0]).ok());
  EXPECT_EQ(all_of(rows, parts[0]).size(), 0u);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(all_of(rows, parts[i]).size(), 21 + i);
  ASSERT_TRUE(put(rows, parts[0], 4, 1).ok());
  EXPECT_EQ(all_of(rows, parts[0]).size(), 1u);
}

TEST(RocksRows, ADamagedBlockIsAnErrorThatNamesTheDirectory) {
  TestDisk disk;
  ColdRows& rows = disk.rows();
  for (uint64_t first = 0; first < 20000; first += 1000) {
    ASSERT_TRUE(put(rows, kPart, first, 1000).ok());
  }
  ASSERT_FALSE(disk.files().empty());
  disk.damage();
  Status status;
  for (uint64_t key = 0; key < 20000 && status.ok(); ++key) {
    status = rows.find(kPart, std::span(&key, 1),
                       [&](size_t, std::string_view bytes) { EXPECT_EQ(bytes, value_of(key)); });
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kIo);
  EXPECT_NE(status.error().message().find(disk.path()), std::string::npos)
      << status.error().message();
  const Status scanned = rows.scan(kPart, [](const ColdRow&) {});
  EXPECT_FALSE(scanned.ok());
}

// No file may become larger than some bytes: what writing to a full disk comes to.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(RocksRows, AFullDiskIsAnErrorThatNamesTheDirectory) {
  TestDisk disk;
  const SmallFiles small(16 << 10);
  Status status;
  for (uint64_t first = 0; first < 100000 && status.ok(); first += 1000) {
    status = put(disk.rows(), kPart, first, 1000);
  }
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find(disk.path()), std::string::npos)
      << status.error().message();
}

TEST(ColdDirectory, IsGoneWithItsOwnerAndThoseOfTheDeadWithIt) {
  TestDisk disk;
  const std::string dead = disk.parent() + "/dead.rows";
  std::filesystem::create_directories(dead + "/db");
  std::ofstream(dead + "/in_use").put('\n');
  const std::string foreign = disk.parent() + "/foreign.rows";  // not made by us
  std::filesystem::create_directory(foreign);
  {
    const auto second = ColdDirectory::make(disk.parent(), "second");
    ASSERT_TRUE(second.ok()) << second.error().message();
    EXPECT_FALSE(std::filesystem::exists(dead));
    EXPECT_TRUE(std::filesystem::exists(disk.path())) << "its process lives";
    EXPECT_FALSE(ColdDirectory::make(disk.parent(), "second").ok());
    remove_abandoned(disk.parent());
    EXPECT_TRUE(std::filesystem::exists(second->path()));
  }
  EXPECT_FALSE(std::filesystem::exists(disk.parent() + "/second.rows"));
  disk.close();
  EXPECT_FALSE(std::filesystem::exists(disk.path()));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST(ColdDirectory, OneThatCannotBeMadeIsNamed) {
  const auto made = open_rocks({"/dev/null/rows", "s0-1", size_t{1} << 20});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message().find("/dev/null/rows"), std::string::npos);
}

}  // namespace
}  // namespace muster::ps
