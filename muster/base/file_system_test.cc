#include "muster/base/file_system.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PosixFileSystemTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "muster-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  std::unique_ptr<FileSystem> fs_ = posix_file_system();
  std::string dir_;
};

TEST_F(PosixFileSystemTest, AppendsToWhatIsThereAndCreatesWhatIsNot) {
  for (const char* text : {"one ", "two"}) {
    auto file = fs_->open_to_append(path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->append(std::string_view(text)).ok());
    ASSERT_TRUE((*file)->close().ok());
  }
  EXPECT_EQ(*fs_->read(path("a")), "one two");
}

TEST_F(PosixFileSystemTest, ReadsAnySizeAndSaysThatADirectoryIsNoFile) {
  for (const size_t size : {0, 1, 65535, 65536, 65537, 300000}) {
    std::string text(size, 'x');
    if (size > 0) text.back() = '!';
    ASSERT_TRUE(write_file_atomically(*fs_, path("f"), text).ok());
    EXPECT_EQ(*fs_->read(path("f")), text);
  }
  EXPECT_FALSE(fs_->read("/proc/self/status")->empty());  // a file whose size is given as 0
  const auto directory = fs_->read(dir_);
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message(), HasSubstr("Is a directory"));
}

TEST_F(PosixFileSystemTest, ReadsTheEndOfAFileOrAllOfIt) {
  const std::string text = "one\ntwo\n";
  ASSERT_TRUE(write_file_atomically(*fs_, path("f"), text).ok());
  FaultInjectionFileSystem other;  // has no way of its own
  ASSERT_TRUE((*other.create("f"))->append(text).ok());
  for (size_t most = 0; most <= text.size() + 1; ++most) {
    const auto end = text.substr(text.size() - std::min(most, text.size()));
    EXPECT_EQ(*fs_->read_end(path("f"), most), end) << most;
    EXPECT_EQ(*other.read_end("f", most), end) << most;
  }
  EXPECT_EQ(*fs_->read_end("/proc/self/comm", 1), "\n");  // a file whose size is given as 0
  EXPECT_FALSE(fs_->read_end(path("none"), 1).ok());
}

TEST_F(PosixFileSystemTest, OnlyTheFirstToCreateADirectoryIsToldSo) {
  EXPECT_TRUE(*fs_->create_directory(path("d")));
  EXPECT_FALSE(*fs_->create_directory(path("d")));
  const auto orphan = fs_->create_directory(path("no/such/parent"));
  ASSERT_FALSE(orphan.ok());
  EXPECT_THAT(orphan.error().message(), HasSubstr("no/such/parent"));
}

TEST_F(PosixFileSystemTest, ASymlinkIsReplacedByRename) {
  ASSERT_TRUE(*fs_->create_directory(path("one")));
  ASSERT_TRUE(*fs_->create_directory(path("two")));
  ASSERT_TRUE(fs_->create_symlink("one", path("latest")).ok());
  EXPECT_FALSE(fs_->create_symlink("two", path("latest")).ok());
  ASSERT_TRUE(fs_->create_symlink("two", path("aside")).ok());
  ASSERT_TRUE(fs_->rename(path("aside"), path("latest")).ok());
  EXPECT_EQ(std::filesystem::read_symlink(path("latest")), "two");
}

TEST_F(PosixFileSystemTest, AnAtomicWriteReplacesAndLeavesNothingAside) {
  ASSERT_TRUE(write_file_atomically(*fs_, path("f"), "old").ok());
  ASSERT_TRUE(write_file_atomically(*fs_, path("f"), "new").ok());
  EXPECT_EQ(*fs_->read(path("f")), "new");
  EXPECT_THAT(*fs_->list(dir_), ElementsAre("f"));
}

TEST(WriteFileAtomically, IsWholeAfterACrashAtAnyOperation) {
  int64_t operations = 1;
  for (int64_t n = 0; n < operations; ++n) {
    for (const auto loss : {CrashLoss::kNothing, CrashLoss::kUnsynced, CrashLoss::kSome}) {
      FaultInjectionFileSystem fs;
      ASSERT_TRUE(write_file_atomically(fs, "f", "old").ok());
      operations = fs.operations();
      fs.restart(CrashLoss::kNothing);
      fs.fail_at(n, Fault::kCrash);
      EXPECT_FALSE(write_file_atomically(fs, "f", "new").ok());
      fs.restart(loss, static_cast<uint64_t>(n));
      EXPECT_THAT(*fs.read("f"), testing::AnyOf("old", "new")) << "crash at operation " << n;
    }
  }
  EXPECT_GE(operations, 6);
}

TEST(WriteFileAtomically, AFullDiskKeepsTheOldFileAndLeavesNothingAside) {
  FaultInjectionFileSystem fs;
  ASSERT_TRUE(write_file_atomically(fs, "f", "old").ok());
  fs.fail_at(fs.operations() + 1, Fault::kDiskFull);
  const Status full = write_file_atomically(fs, "f", "new");
  ASSERT_FALSE(full.ok());
  EXPECT_THAT(full.error().message(), HasSubstr("No space left"));
  EXPECT_EQ(*fs.read("f"), "old");
  EXPECT_THAT(*fs.list(""), ElementsAre("f"));
}

// The tool must be able to show the bug it is there for.
TEST(FaultInjection, LosesWhatWasNotSynced) {
  FaultInjectionFileSystem fs;
  auto file = fs.create("f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(fs.sync_directory("").ok());
  ASSERT_TRUE((*file)->append("durable").ok());
  ASSERT_TRUE((*file)->sync().ok());
  ASSERT_TRUE((*file)->append(" lost").ok());
  ASSERT_TRUE(fs.create("unsynced name").ok());
  fs.restart(CrashLoss::kUnsynced);
  EXPECT_EQ(*fs.read("f"), "durable");
  EXPECT_FALSE(fs.exists("unsynced name"));
}

}  // namespace
}  // namespace muster
