#include "tools/muster/text_table.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

Console plain(int width = 0) { return Console(stdout, stderr, {false, false, width}); }

TextTable runs_table() {
  TextTable table({{"name", TextTable::Align::kLeft, true}, {"steps", TextTable::Align::kRight}});
  table.add({"lenet-mnist-20260301-123005", "1,407"});
  table.add({"gpt", "7"});
  return table;
}

TEST(TextTable, AlignsColumns) {
  EXPECT_EQ(runs_table().render(plain()),
            "name                         steps\n"
            "lenet-mnist-20260301-123005  1,407\n"
            "gpt                              7\n");
}

TEST(TextTable, CutsTheColumnThatMayShrinkToTheTerminal) {
  EXPECT_EQ(runs_table().render(plain(20)),
            "name           steps\n"
            "lenet-mnist-…  1,407\n"
            "gpt                7\n");
}

TEST(TextTable, LeavesNoBlanksAtTheEndOfALine) {
  TextTable table({{"a"}, {"b"}});
  table.add({"long text", ""});
  table.add({"", "x"});
  EXPECT_EQ(table.render(plain()), "a          b\nlong text\n           x\n");
}

TEST(TextTable, CountsCharactersNotBytes) {
  TextTable table({{""}, {""}});
  table.add({"größe", "1"});
  table.add({"weite", "2"});
  EXPECT_EQ(table.render(plain()), "größe  1\nweite  2\n");
  EXPECT_EQ(shortened("größe", 4), "grö…");
  EXPECT_EQ(shortened("größe", 5), "größe");
}

TEST(TextTable, ACellCannotBreakTheTable) {
  TextTable table({{""}, {""}});
  table.add({"two\nlines\033[31m", "x"});
  EXPECT_EQ(table.render(plain()), "two lines [31m  x\n");
}

TEST(TextTable, ColoursDoNotChangeTheWidth) {
  TextTable table({{""}, {""}});
  table.add({{"ok", Paint::kGood}, "1"});
  table.add({"failed", "2"});
  EXPECT_EQ(table.render(Console(stdout, stderr, {true, false, 0})),
            "\033[32mok\033[0m      1\nfailed  2\n");
}

}  // namespace
}  // namespace muster::cli
