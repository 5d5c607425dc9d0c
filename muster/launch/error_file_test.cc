#include "muster/launch/error_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include <gtest/gtest.h>

namespace muster::launch {
namespace {

class ErrorFileTest : public testing::Test {
 protected:
  ErrorFileTest() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~ErrorFileTest() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/0.err"; }

  // A worker that writes this; where its part begins.
  int64_t worker(std::string_view text) const {
    const auto file = ErrorFile::open(path());
    EXPECT_TRUE(file.ok());
    EXPECT_EQ(write(file->fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return file->begin();
  }

 private:
  std::string folder_;
};

TEST_F(ErrorFileTest, OnlyTheLastWorkersLastLines) {
  EXPECT_EQ(worker("old\n"), 0);
  const int64_t begin = worker("a\nb\nc\n\n");
  EXPECT_EQ(last_lines(path(), begin, 20), "a\nb\nc");
  EXPECT_EQ(last_lines(path(), begin, 3), "a\nb\nc");
  EXPECT_EQ(last_lines(path(), begin, 2), "b\nc");
  EXPECT_EQ(last_lines(path(), begin, 1), "c");
  EXPECT_EQ(last_lines(path(), worker(""), 20), "");
}

TEST_F(ErrorFileTest, ALineWithoutEndAndAHugeFile) {
  std::string text(1 << 20, 'x');
  text += "\nlast";
  worker(text);
  EXPECT_EQ(last_lines(path(), 0, 1), "last");
  EXPECT_LE(last_lines(path(), 0, 20).size(), 64u << 10);
}

TEST_F(ErrorFileTest, NoFileNoWords) { EXPECT_EQ(last_lines("/nowhere/0.err", 0, 20), ""); }

TEST_F(ErrorFileTest, AFolderThatIsNotThere) {
  EXPECT_FALSE(ErrorFile::open("/nowhere/0.err").ok());
}

}  // namespace
}  // namespace muster::launch
