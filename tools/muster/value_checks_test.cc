#include "tools/muster/value_checks.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

// What is wrong with it; empty: nothing.
std::string wrong(const CLI::Validator& check, std::string text) { return check(text); }

TEST(ValueChecks, Choices) {
  EXPECT_EQ(wrong(one_of({"table", "json"}), "json"), "");
  EXPECT_EQ(wrong(one_of({"table", "json"}), "jsn"),
            "must be table or json, not 'jsn' (did you mean 'json'?)");
}

TEST(ValueChecks, Numbers) {
  EXPECT_EQ(wrong(whole_number(1), "1"), "");
  for (const char* const text : {"0", "-1", "1.5", "1x", "", "99999999999999999999"}) {
    EXPECT_NE(wrong(whole_number(1), text), "") << text;
  }
  EXPECT_EQ(wrong(positive_number(), "0.5"), "");
  for (const char* const text : {"-0.5", "nan", "inf", "warm"}) {
    EXPECT_NE(wrong(positive_number(), text), "") << text;
  }
}

TEST(ValueChecks, NamesOfOurs) {
  for (const char* const text : {"best", "newest", "0", "1200"}) {
    EXPECT_EQ(wrong(checkpoint_name(), text), "") << text;
  }
  EXPECT_NE(wrong(checkpoint_name(), "latest"), "");
  for (const char* const text : {"7", "0-9", "1,5,8-10"}) {
    EXPECT_EQ(wrong(sample_list(), text), "") << text;
  }
  for (const char* const text : {"9-0", "1-2-3", "1,,2", "-1", "all"}) {
    EXPECT_NE(wrong(sample_list(), text), "") << text;
  }
  EXPECT_EQ(wrong(worker_id(), "rack-2_a.7"), "");
  for (const char* const text : {"", ".hidden", "a/b", "a b"}) {
    EXPECT_NE(wrong(worker_id(), text), "") << text;
  }
}

}  // namespace
}  // namespace muster::cli
