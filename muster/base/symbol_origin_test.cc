#include "muster/base/symbol_origin.h"

#include <cstdlib>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(SymbolOriginTest, FindsAFunctionOfASharedLibrary) {
  const auto origin = symbol_origin(function_address(&XXH_versionNumber));
  ASSERT_TRUE(origin.ok());
  EXPECT_THAT(*origin, HasSubstr("libxxhash"));
}

TEST(SymbolOriginTest, FindsOwnCodeAndData) {
  static int here = 0;
  const auto data = symbol_origin(&here);
  ASSERT_TRUE(data.ok());
  EXPECT_THAT(*data, HasSubstr("muster_base_test"));
  const auto code = symbol_origin(function_address(&error_kind_name));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(*code, *data);
}

TEST(SymbolOriginTest, RefusesWhatIsInNoLibrary) {
  const auto heap = std::make_unique<int>(0);
  const auto origin = symbol_origin(heap.get());
  ASSERT_FALSE(origin.ok());
  EXPECT_EQ(origin.error().kind(), ErrorKind::kInternal);
}

TEST(SymbolOriginTest, CheckAcceptsTheRightLibrary) {
  EXPECT_TRUE(
      check_symbol_origin("XXH_versionNumber", function_address(&XXH_versionNumber), "libxxhash")
          .ok());
}

TEST(SymbolOriginTest, CheckSaysWhereTheSymbolReallyCameFrom) {
  const Status status =
      check_symbol_origin("XXH_versionNumber", function_address(&XXH_versionNumber), "libgloo");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(status.error().message(), HasSubstr("libxxhash"));
  EXPECT_THAT(status.error().message(), HasSubstr("libgloo"));
}

// "libgloo" must not be met by a folder of that name, only by the file's own name.
TEST(SymbolOriginTest, CheckLooksAtTheFileNameOnly) {
  const auto origin = symbol_origin(function_address(&XXH_versionNumber));
  ASSERT_TRUE(origin.ok());
  const std::string folder = origin->substr(0, origin->find_last_of('/'));
  EXPECT_FALSE(
      check_symbol_origin("XXH_versionNumber", function_address(&XXH_versionNumber), folder).ok());
}

}  // namespace
}  // namespace muster
