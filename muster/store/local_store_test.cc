#include "muster/store/local_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"
#include "muster/store/store_testing.h"

namespace muster::store {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class LocalStoreTest : public testing::Test {
 protected:
  std::string put(const std::string& name, std::string_view contents) {
    const std::string path = root_.path() + "/" + name;
    stdfs::create_directories(stdfs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }
  std::vector<std::string> names(const std::string& pattern) {
    const auto found = store_.list(root_.path() + "/" + pattern);
    EXPECT_TRUE(found.ok()) << found.error().message();
    std::vector<std::string> out;
    for (const auto& object : *found) out.push_back(object.name.substr(root_.path().size() + 1));
    return out;
  }
  Object only(const std::string& path) {
    auto found = store_.list(path);
    EXPECT_TRUE(found.ok()) << found.error().message();
    return found->at(0);
  }

  ScratchDirectory root_ = *ScratchDirectory::make("local-store");
  LocalStore store_;
};

TEST_F(LocalStoreTest, ReadsAnyPartOfAFile) {
  const auto path = put("x", "0123456789");
  const auto object = only(path);
  EXPECT_EQ(object.name, path);
  EXPECT_EQ(object.size, 10);
  EXPECT_EQ(*read_text(store_, object, 3, 4), "3456");
  EXPECT_EQ(*read_text(store_, object, 0, 10), "0123456789");
  EXPECT_EQ(*read_text(store_, object, 10, 0), "");
  EXPECT_EQ(only("file://" + path), object);
}

TEST_F(LocalStoreTest, ListsByPatternSortedBytewise) {
  for (const char* name : {"a/2.tar", "a/10.tar", "a/B.tar", "a/b/c.tar", "a/b/d/e.tar", "a/x.txt",
                           "a/.hidden.tar", ".git/x.tar", "z.tar"}) {
    put(name, "x");
  }
  EXPECT_THAT(names("a/*.tar"), ElementsAre("a/10.tar", "a/2.tar", "a/B.tar"));
  EXPECT_THAT(names("**/?.tar"),
              ElementsAre("a/2.tar", "a/B.tar", "a/b/c.tar", "a/b/d/e.tar", "z.tar"));
  EXPECT_THAT(names("a/b/**"), ElementsAre("a/b/c.tar", "a/b/d/e.tar"));
  EXPECT_THAT(names("*/b/**/e.tar"), ElementsAre("a/b/d/e.tar"));
  EXPECT_THAT(names("**/b/**/*.tar"), ElementsAre("a/b/c.tar", "a/b/d/e.tar"));
  EXPECT_THAT(names("nothing/*"), ElementsAre());
  EXPECT_THAT(names("a/x.txt/*"), ElementsAre());
}

TEST_F(LocalStoreTest, FollowsLinksToFilesButNotInCircles) {
  put("a/x", "1");
  stdfs::create_directory_symlink(root_.path(), root_.path() + "/a/loop");
  stdfs::create_symlink(root_.path() + "/a/x", root_.path() + "/y");
  stdfs::create_symlink("nowhere", root_.path() + "/broken");
  EXPECT_THAT(names("**"), ElementsAre("a/x", "y"));
}

TEST_F(LocalStoreTest, SaysWhatIsWrongWithAPath) {
  put("d/x", "1");
  const auto missing = store_.list(root_.path() + "/no");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind(), ErrorKind::kData);
  EXPECT_THAT(missing.error().message(), HasSubstr("there is no file"));
  const auto folder = store_.list(root_.path() + "/d");
  ASSERT_FALSE(folder.ok());
  EXPECT_THAT(folder.error().message(), HasSubstr("/d/**'"));
  EXPECT_FALSE(store_.list("/dev/null").ok());
  EXPECT_FALSE(store_.list("s3://b/x").ok());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(store_.list_stoppable(root_.path() + "/**", stop.get_token()).error().kind(),
            ErrorKind::kInterrupted);
}

TEST_F(LocalStoreTest, NoticesAFileThatWasChangedReplacedOrRemoved) {
  const auto path = put("x", "0123456789");
  const auto object = only(path);
  put("other", "0123456789");
  stdfs::rename(root_.path() + "/other", path);
  auto read = read_text(store_, object, 0, 10);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kData);
  EXPECT_THAT(read.error().message(), HasSubstr("was changed"));

  const auto second = only(path);
  ASSERT_EQ(::truncate(path.c_str(), 5), 0);
  EXPECT_THAT(read_text(store_, second, 0, 10).error().message(), HasSubstr("was changed"));
  stdfs::remove(path);
  EXPECT_THAT(read_text(store_, second, 0, 10).error().message(), HasSubstr("there is no file"));
}

TEST_F(LocalStoreTest, AReadBeyondTheEndIsAnError) {
  auto object = only(put("x", "0123456789"));
  const auto read = read_text(store_, object, 8, 4);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().kind(), ErrorKind::kData);
  EXPECT_THAT(read.error().message(), HasSubstr("ends at byte 10"));
}

TEST_F(LocalStoreTest, WritesUnderConditions) {
  const std::string path = root_.path() + "/new/deep/x";
  const auto first = write_text(store_, path, "one", WriteCondition::if_absent());
  ASSERT_TRUE(first.ok()) << first.error().message();
  ASSERT_TRUE(first->has_value());
  EXPECT_EQ(only(path).version, **first);
  EXPECT_EQ(*write_text(store_, path, "two", WriteCondition::if_absent()), std::nullopt);
  EXPECT_EQ(*read_text(store_, only(path), 0, 3), "one");

  const auto second = write_text(store_, path, "three", WriteCondition::if_version(**first));
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ(*write_text(store_, path, "four", WriteCondition::if_version(**first)), std::nullopt);
  EXPECT_EQ(*read_text(store_, only(path), 0, 5), "three");
  EXPECT_EQ(*write_text(store_, root_.path() + "/none", "x", WriteCondition::if_version("1")),
            std::nullopt);
  ASSERT_TRUE(write_text(store_, path, "", WriteCondition::always())->has_value());
  EXPECT_EQ(only(path).size, 0);
  // Nothing is left beside it.
  EXPECT_THAT(names("**"), ElementsAre("new/deep/x"));
}

TEST_F(LocalStoreTest, RemovesWithDirectoriesThatBecomeEmpty) {
  put("top", "1");
  const auto first = put("a/b/x", "1");
  const auto second = put("a/y", "2");
  ASSERT_TRUE(store_.remove(first).ok());
  ASSERT_TRUE(store_.remove(first).ok());  // there is none
  EXPECT_THAT(names("**"), ElementsAre("a/y", "top"));
  EXPECT_FALSE(stdfs::exists(root_.path() + "/a/b"));
  ASSERT_TRUE(store_.remove(second).ok());
  EXPECT_FALSE(stdfs::exists(root_.path() + "/a"));
  EXPECT_TRUE(stdfs::exists(root_.path() + "/top"));
}

TEST_F(LocalStoreTest, OfSeveralThatCreateOneSucceeds) {
  const std::string path = root_.path() + "/x";
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      LocalStore own;
      const auto written = write_text(own, path, std::to_string(i), WriteCondition::if_absent());
      if (written.ok() && written->has_value()) ++won;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_THAT(names("**"), ElementsAre("x"));
}

}  // namespace
}  // namespace muster::store
