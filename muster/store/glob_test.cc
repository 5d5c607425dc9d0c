#include "muster/store/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

bool match(std::string_view pattern, std::string_view name) {
  const auto glob = Glob::parse(pattern);
  EXPECT_TRUE(glob.ok()) << pattern;
  return glob.ok() && glob->matches(name);
}

TEST(GlobTest, StarsAndQuestionMarksStayWithinAName) {
  EXPECT_TRUE(match("a/*.tar", "a/x.tar"));
  EXPECT_FALSE(match("a/*.tar", "a/b/x.tar"));
  EXPECT_TRUE(match("part-??.csv", "part-01.csv"));
  EXPECT_FALSE(match("part-??.csv", "part-1.csv"));
  EXPECT_TRUE(match("*a*b*", "xxaxxbab"));
  EXPECT_TRUE(match("*", "x"));
  EXPECT_FALSE(match("a/*", "a/"));  // a folder's marker in S3
  EXPECT_TRUE(match("a*", "a"));
  EXPECT_FALSE(match("?", "ab"));
  EXPECT_TRUE(match("a?c", "a*c"));
}

TEST(GlobTest, TwoStarsAreAnyNumberOfFolders) {
  EXPECT_TRUE(match("a/**/x", "a/x"));
  EXPECT_TRUE(match("a/**/x", "a/b/c/x"));
  EXPECT_FALSE(match("a/**/x", "b/x"));
  EXPECT_TRUE(match("**/x.tar", "x.tar"));
  EXPECT_TRUE(match("a/**", "a/b"));
  EXPECT_TRUE(match("a/**", "a/b/c"));
  EXPECT_FALSE(match("a/**", "a"));
  EXPECT_FALSE(match("a/**", "a/b/"));
  EXPECT_TRUE(match("**/a/**/b", "x/a/y/a/z/b"));
  EXPECT_TRUE(match("**/a/b", "a/a/b"));
  EXPECT_FALSE(match("**/a/b", "a/b/a"));
  EXPECT_TRUE(match("/d/**/*.tar", "/d/e/f.tar"));
  EXPECT_TRUE(match("a/**/**/b", "a/b"));
}

TEST(GlobTest, WildcardsPassOverHiddenNames) {
  EXPECT_FALSE(match("a/*", "a/.hidden"));
  EXPECT_FALSE(match("a/?x", "a/.x"));
  EXPECT_TRUE(match("a/.*", "a/.hidden"));
  EXPECT_FALSE(match("**/x", ".git/x"));
  EXPECT_FALSE(match("**", "a/.b"));
  EXPECT_TRUE(match("**/.x/**/b", "a/.x/c/b"));
}

TEST(GlobTest, KnowsWhatAllMatchesBeginWith) {
  EXPECT_EQ(Glob::parse("data/a*/b")->prefix(), "data/a");
  EXPECT_EQ(Glob::parse("data/**")->prefix(), "data/");
  EXPECT_EQ(Glob::parse("*")->prefix(), "");
  EXPECT_TRUE(Glob::parse("data/x/a*")->in_one_folder());
  EXPECT_FALSE(Glob::parse("data/x*/a*")->in_one_folder());
  EXPECT_FALSE(Glob::parse("data/**")->in_one_folder());
}

TEST(GlobTest, RefusesTwoStarsWithinAName) {
  const auto glob = Glob::parse("a/b**/c");
  ASSERT_FALSE(glob.ok());
  EXPECT_THAT(glob.error().message(), testing::HasSubstr("'b**'"));
}

// What takes exponential time if a match is tried by recursion.
TEST(GlobTest, TakesNoLongerForManyStars) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(match(pattern + "b", std::string(5000, 'a')));
  std::string folders;
  std::string name;
  for (int i = 0; i < 50; ++i) folders += "**/a/";
  for (int i = 0; i < 500; ++i) name += "a/";
  EXPECT_FALSE(match(folders + "b", name + "a"));
}

}  // namespace
}  // namespace muster::store
