#include "muster/base/scratch_directory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ScratchDirectory, IsGoneWithItsOwnerAndAllThatIsInIt) {
  std::string path;
  {
    auto made = ScratchDirectory::make("muster-test");
    ASSERT_TRUE(made.ok());
    const ScratchDirectory moved = *std::move(made);
    path = moved.path();
    EXPECT_NE(path.find("/muster-test-"), std::string::npos);
    std::ofstream(path + "/file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path + "/file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ScratchDirectory, StaysIfReleased) {
  std::string path;
  {
    auto made = ScratchDirectory::make("muster-test");
    ASSERT_TRUE(made.ok());
    path = made->release();
  }
  EXPECT_TRUE(std::filesystem::remove(path));
}

// NOLINTBEGIN(concurrency-mt-unsafe): one thread
TEST(ScratchDirectory, WithoutTmpdirThereIsAnotherPlaceOrAnError) {
  const char* before = getenv("TMPDIR");
  const std::string old = before == nullptr ? "" : before;
  setenv("TMPDIR", "/nowhere", 1);
  EXPECT_FALSE(ScratchDirectory::make("muster-test").ok());
  EXPECT_TRUE(ScratchDirectory::make("muster-test", "/tmp").ok());
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", old.c_str(), 1);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace muster
