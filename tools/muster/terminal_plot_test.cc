#include "tools/muster/terminal_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/text.h"

#include "tools/muster/text_table.h"

namespace muster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

PlotCurve falling(const std::string& name, double from) {
  PlotCurve made{name, {.metric = "loss", .points = {}, .not_finite = {}}};
  for (int64_t step = 1; step <= 100; ++step) {
    made.curve.points.push_back({step, from / static_cast<double>(step)});
  }
  return made;
}

TEST(TerminalPlot, IsABoxOfTheWidthAskedFor) {
  for (const int width : {40, 80, 213}) {
    const auto text = terminal_plot({falling("a", 4)}, {.width = width});
    const auto lines = split(text, '\n');
    ASSERT_EQ(lines.size(), 17U) << text;  // title, 12 lines, axis, numbers, legend, nothing
    EXPECT_EQ(display_width(lines[13]), static_cast<size_t>(width)) << text;
    for (const auto& line : lines) {
      EXPECT_LE(display_width(line), static_cast<size_t>(std::max(width, 90))) << text;
      EXPECT_FALSE(line.ends_with(' ')) << text;
    }
    EXPECT_THAT(lines[0], HasSubstr("training loss (logarithmic), by step"));
    EXPECT_THAT(lines[15], HasSubstr("  a: 0.0400 at step 100, lowest 0.0400 at 100, highest "
                                     "4.0000 at 1"));
  }
}

// The curve falls: its first dot is in the first line of the picture, its last in the last.
TEST(TerminalPlot, IsTheRightWayUp) {
  const auto lines = split(terminal_plot({falling("a", 4)}, {.width = 60, .ascii = true}), '\n');
  EXPECT_LT(lines[1].find('*'), 8U) << lines[1];
  EXPECT_EQ(lines[12].rfind('*'), lines[13].size() - 1) << lines[12];
}

TEST(TerminalPlot, TellsRunsApartWithAndWithoutColours) {
  const std::vector<PlotCurve> two = {falling("first", 4), falling("second", 9)};
  const auto plain = terminal_plot(two, {.width = 60});
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_THAT(plain, HasSubstr("  * first: "));
  EXPECT_THAT(plain, HasSubstr("  o second: "));
  const auto colours = terminal_plot(two, {.width = 60, .colour = true});
  EXPECT_THAT(colours, HasSubstr("\033[33msecond\033[0m: "));
  EXPECT_THAT(colours, Not(HasSubstr("*")));
}

TEST(TerminalPlot, OnlyAsciiWhereNothingElseCanBeShown) {
  for (const char c : terminal_plot({falling("a", 4)}, {.width = 60, .ascii = true})) {
    EXPECT_GE(c, 0);
  }
}

TEST(TerminalPlot, StandsLittleAndBadData) {
  EXPECT_EQ(terminal_plot({}, {}), "");
  PlotCurve curve{"a", {.metric = "loss", .points = {}, .not_finite = {3, 2}}};
  EXPECT_THAT(terminal_plot({curve}, {}), HasSubstr("no finite value"));
  EXPECT_THAT(terminal_plot({curve}, {}), HasSubstr("2 values not finite, first at step 2"));
  curve.curve.points = {{5, 1e308}};
  EXPECT_THAT(terminal_plot({curve}, {}), HasSubstr("1.000e+308"));
  curve.curve.points = {{1, -1.7e308}, {2, 1.7e308}, {9'000'000'000'000, 0}};
  EXPECT_THAT(terminal_plot({curve}, {.width = 1}), HasSubstr("9"));
}

TEST(TerminalPlot, ShortTimesAreInMilliseconds) {
  PlotCurve curve{"a", {.metric = "seconds", .points = {{1, 0.02}, {2, 0.03}}, .not_finite = {}}};
  const auto text = terminal_plot({curve}, {.width = 60});
  EXPECT_THAT(text, HasSubstr("step time in ms, by step"));
  EXPECT_THAT(text, HasSubstr("  a: 30 ms at step 2, lowest 20 ms at 1, highest 30 ms at 2"));
}

TEST(TerminalPlot, CountsAreWhole) {
  PlotCurve curve{"a", {.metric = "gradient_bits", .points = {{1, 21}, {2, 23}}, .not_finite = {}}};
  const auto text = terminal_plot({curve}, {.width = 60});
  EXPECT_THAT(text, HasSubstr("  a: 23 at step 2, lowest 21 at 1, highest 23 at 2"));
  EXPECT_THAT(text, Not(HasSubstr("21.5")));
}

}  // namespace
}  // namespace muster::cli
