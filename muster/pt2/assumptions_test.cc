#include "muster/pt2/assumptions.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::pt2 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> kInputs = {"x", "args_0", "d_t"};
const std::vector<Shape> kShapes = {{12, 8}, {5}, {7, 3}};

std::string value_of(const std::string& text) {
  const auto expression = SizeExpression::parse(text, kInputs);
  if (!expression) return "unknown";
  const auto number = expression->value(kShapes);
  if (!number.ok()) return "error";
  if (const auto* truth = std::get_if<bool>(&*number)) return *truth ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&*number)) return std::to_string(*whole);
  return fmt::format("{:.2f}", std::get<double>(*number));
}

// As PyTorch 2.15 writes them.
TEST(SizeExpression, GuardsOfRealExports) {
  EXPECT_EQ(value_of("L['x'].size()[0] > 8"), "true");
  EXPECT_EQ(value_of("L['args'][0].size()[0] > 8"), "false");
  EXPECT_EQ(value_of("L['d']['t'].size()[0] != 7"), "false");
  EXPECT_EQ(value_of("(L['x'].size()[0] % 4) == 0"), "true");
  EXPECT_EQ(value_of("((4*L['x'].size()[0]) % 16) == 0"), "true");
  EXPECT_EQ(value_of("(4*L['x'].size()[0]) == (16*(L['x'].size()[0] // 4))"), "true");
  EXPECT_EQ(value_of("(L['x'].size()[0] // (L['x'].size()[0] // 4)) != 4"), "false");
  EXPECT_EQ(value_of("L['x'].size()[0]*L['x'].size()[0] > 144"), "false");
  EXPECT_EQ(value_of("torch.sym_max(20, L['x'].size()[0]) > 25"), "false");
  EXPECT_EQ(value_of("torch.sym_min(20, L['x'].size()[0] // 2) > 3"), "true");
  EXPECT_EQ(value_of("(L['x'].size()[0] / 2) < 100.5"), "true");
  EXPECT_EQ(value_of("(L['x'].size()[0] & 4) != 0"), "true");
}

TEST(SizeExpression, BindsAsPython) {
  EXPECT_EQ(value_of("1 + 2*3 - 4"), "3");
  EXPECT_EQ(value_of("-2**2"), "-4");
  EXPECT_EQ(value_of("2**3**2"), "512");
  EXPECT_EQ(value_of("2**-1"), "0.50");
  EXPECT_EQ(value_of("-7 // 2"), "-4");
  EXPECT_EQ(value_of("1 << 2 + 1"), "8");
  EXPECT_EQ(value_of("6 & 3 | 8"), "10");
  EXPECT_EQ(value_of("1 | 2 == 3"), "true");
  EXPECT_EQ(value_of("8 >> 1 >= 4"), "true");
  EXPECT_EQ(value_of("not 1 == 2 and 3 < 4"), "true");
  EXPECT_EQ(value_of("1 == 2 and 1 == 2 or 3 == 3"), "true");
  EXPECT_EQ(value_of("not (1 == 1 or 1 == 2)"), "false");
  EXPECT_EQ(value_of("max(1, 2) <= min(2, 3)"), "true");
  EXPECT_EQ(value_of("True"), "true");
}

TEST(SizeExpression, WhatIsNotKnown) {
  for (const char* text : {"", "1 +", "(1", "1 < 2 < 3", "L['y'].size()[0] > 8",
                           "L['x'].stride()[0] == 8", "L['x'].size()[-1] == 8", "L['x']",
                           "unknown(1)", "x > 8", "1 2", "orange", "99999999999999999999"}) {
    EXPECT_EQ(value_of(text), "unknown") << text;
  }
  EXPECT_EQ(value_of("L['x'].size()[2] == 8"), "error");
  EXPECT_EQ(value_of("L['x'].size()[0] % (L['x'].size()[0] // 40)"), "error");
  EXPECT_EQ(value_of("torch.sym_max(1)"), "error");
}

// A file may come from a stranger.
TEST(SizeExpression, DeepNestingDoesNotOverflowTheStack) {
  for (const char* word : {"(", "-", "not ", "1**", "max("}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += word;
    EXPECT_EQ(value_of(text + "1"), "unknown") << word;
  }
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "Add(";
  EXPECT_FALSE(parse_size(text));
}

TEST(ParseSize, ReadsWhatSympyWrites) {
  const auto text = [](const std::string& expression) {
    const auto size = parse_size(expression);
    return size ? fmt::format("{}*{}+{}", size->factor, size->symbol, size->offset) : "unknown";
  };
  const std::string symbol = "Symbol('s77', positive=True, integer=True)";
  EXPECT_EQ(text(symbol), "1*s77+0");
  EXPECT_EQ(text("Mul(Integer(4), " + symbol + ")"), "4*s77+0");
  EXPECT_EQ(text("Add(Mul(Integer(2), " + symbol + "), Integer(-1))"), "2*s77+-1");
  EXPECT_EQ(text("Mul(Integer(2), Add(" + symbol + ", Integer(3)))"), "2*s77+6");
  EXPECT_EQ(text("Integer(3)"), "unknown");
  EXPECT_EQ(text("Mul(" + symbol + ", " + symbol + ")"), "unknown");
  EXPECT_EQ(text("Mul(Integer(-1), " + symbol + ")"), "unknown");
  EXPECT_EQ(text("Add(" + symbol + ", Symbol('s1', integer=True))"), "unknown");
  EXPECT_EQ(text("Mod(" + symbol + ", Integer(4))"), "unknown");
  EXPECT_EQ(text("Mul(Integer(9999999999), " + symbol + ")"), "unknown");
  EXPECT_EQ(text(symbol + " 1"), "unknown");
}

std::string error_of(const Assumptions& assumptions, const std::vector<Shape>& shapes) {
  const auto status = check_shapes(assumptions, "m.pt2", shapes);
  return status.ok() ? "no error" : status.error().message();
}

TEST(CheckShapes, RangesAreThoseOfSymbols) {
  Assumptions all;
  all.inputs = {"x"};
  all.sizes = {{0, 0, {1, 0, "s0"}, {9, 99}}};
  EXPECT_EQ(error_of(all, {{9, 8}}), "no error");
  EXPECT_EQ(error_of(all, {{99, 8}}), "no error");
  EXPECT_THAT(error_of(all, {{8, 8}}),
              HasSubstr("'m.pt2' was exported for 9 to 99 samples at a time, not for 8: change"));
  EXPECT_THAT(error_of(all, {{100, 8}}), HasSubstr("not for 100"));
  all.sizes[0].range = {9, SymbolRange::kMost};
  EXPECT_THAT(error_of(all, {{4, 8}}), HasSubstr("for 9 or more samples at a time, not for 4"));
  all.sizes[0].range = {0, 64};
  EXPECT_THAT(error_of(all, {{65, 8}}), HasSubstr("for at most 64 samples"));
  all.sizes[0] = {0, 0, {4, 0, "s0"}, {3, 20}};
  EXPECT_EQ(error_of(all, {{12}}), "no error");
  EXPECT_THAT(error_of(all, {{8}}),
              HasSubstr("for 12 to 80 samples at a time (in steps of 4), not for 8"));
  EXPECT_THAT(error_of(all, {{13}}), HasSubstr("not for 13"));
  all.sizes = {{0, 1, {1, 0, "s1"}, {10, SymbolRange::kMost}}};
  EXPECT_THAT(error_of(all, {{4, 8}}),
              HasSubstr("for 10 or more in dimension 1 of 'x', not for 8"));
}

TEST(CheckShapes, SizesOfOneSymbolAreEqual) {
  Assumptions all;
  all.inputs = {"x", "t"};
  all.sizes = {{0, 0, {1, 0, "s0"}, {}}, {1, 0, {1, 0, "s0"}, {}}};
  EXPECT_EQ(error_of(all, {{4, 8}, {4}}), "no error");
  EXPECT_THAT(error_of(all, {{4, 8}, {5}}), HasSubstr("dimension 0 of 't', 5, does not"));
}

TEST(CheckShapes, GuardsAreNamed) {
  Assumptions all;
  all.inputs = {"x"};
  const std::string guard = "(L['x'].size()[0] % 4) == 0";
  all.guards = {{guard, SizeExpression::parse(guard, all.inputs)}};
  EXPECT_EQ(error_of(all, {{8, 2}}), "no error");
  EXPECT_THAT(error_of(all, {{6, 2}}),
              AllOf(HasSubstr("'m.pt2' is right only if `" + guard + "`"), HasSubstr("[6, 2]")));
  all.guards = {{"moon == full", std::nullopt}};
  EXPECT_THAT(error_of(all, {{8, 2}}),
              AllOf(HasSubstr("`moon == full`"), HasSubstr("cannot evaluate")));
}

}  // namespace
}  // namespace muster::pt2
