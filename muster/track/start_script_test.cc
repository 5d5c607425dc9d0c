#include "muster/track/start_script.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "muster/track/temp_directory_testing.h"

namespace muster::track {
namespace {

TEST(StartScriptTest, PassesItsWordsOn) {
  const TempDirectory directory;
  const auto files = posix_file_system();
  EXPECT_EQ(find_start_script(directory.path()), "");
  const auto script = write_start_script(*files, directory.path(),
                                         {"/usr/bin/printf", "%s|", "it's", "$HOME", "[\"a b\"]"});
  ASSERT_TRUE(script.ok());
  EXPECT_EQ(find_start_script(directory.path()), *script);
  const auto out = directory.path() + "/out";
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  ASSERT_EQ(std::system((*script + " train 'a b' > " + out).c_str()), 0);
  std::stringstream text;
  text << std::ifstream(out).rdbuf();
  EXPECT_EQ(text.str(), "it's|$HOME|[\"a b\"]|train|a b|");
}

// Its words may be nobody else's business.
TEST(StartScriptTest, TheUmaskSaysWhoMayReadIt) {
  const TempDirectory directory;
  const auto files = posix_file_system();
  const mode_t before = umask(077);
  const auto script = write_start_script(*files, directory.path(), {"true", "--token", "secret"});
  umask(before);
  ASSERT_TRUE(script.ok());
  EXPECT_EQ(std::filesystem::status(*script).permissions(), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace muster::track
