#include "muster/config/node.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/random.h"

namespace muster::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Node parse(std::string_view text) {
  auto node = parse_yaml(text, "job.yaml");
  EXPECT_TRUE(node.ok()) << node.error().message();
  return node.ok() ? *node : Node();
}

std::string parse_error(std::string_view text) {
  auto node = parse_yaml(text, "job.yaml");
  EXPECT_FALSE(node.ok());
  if (node.ok()) return "";
  EXPECT_EQ(node.error().kind(), ErrorKind::kJob);
  return node.error().message();
}

TEST(ParseYaml, BuildsTheTreeAndRemembersPlaces) {
  const Node root = parse("name: lenet\nlist: [1, two]\nmap:\n  inner: true\n");
  ASSERT_TRUE(root.is_map());
  EXPECT_EQ(root.find("name")->text(), "lenet");
  EXPECT_EQ(root.find("name")->mark().text(), "job.yaml:1:7");
  EXPECT_EQ(root.find("name")->key_mark().text(), "job.yaml:1:1");
  ASSERT_EQ(root.find("list")->items().size(), 2U);
  EXPECT_EQ(root.find("list")->items()[1].mark().text(), "job.yaml:2:11");
  EXPECT_EQ(root.find("list")->items()[1].key_mark().text(), "job.yaml:2:11");
  EXPECT_EQ(root.find("map")->key_mark().text(), "job.yaml:3:1");
  EXPECT_EQ(root.find("map")->find("inner")->key_mark().text(), "job.yaml:4:3");
  EXPECT_EQ(root.find("nothing"), nullptr);
}

TEST(ParseYaml, EmptyTextIsNull) {
  EXPECT_TRUE(parse("").is_null());
  EXPECT_TRUE(parse("# only a comment\n").is_null());
  EXPECT_TRUE(parse("~").is_null());
  EXPECT_TRUE(parse("\xEF\xBB\xBF"
                    "a: 1")
                  .is_map());  // a byte order mark, as Windows editors add
}

TEST(ParseYaml, RefusesWhatAJobFileIsBetterWithout) {
  EXPECT_EQ(parse_error("seed: 1\nname: x\nseed: 2\n"),
            "job.yaml:3:1: 'seed' is there twice; remove one");
  EXPECT_EQ(
      parse_error("a: &x 1\n"),
      "job.yaml:1:4: a job file has no anchors (&name); write the value out where it is used");
  // yaml-cpp 0.8 adds its name.
  EXPECT_TRUE(parse_error("a: *x\n").starts_with(
      "job.yaml:1:4: not valid YAML: the referenced anchor is not defined"));
  EXPECT_EQ(
      parse_error("a: &x 1\nb: *x\n"),
      "job.yaml:1:4: a job file has no anchors (&name); write the value out where it is used");
  EXPECT_EQ(parse_error("a: !!str 7\n"),
            "job.yaml:1:4: a job file has no tags ('tag:yaml.org,2002:str'); remove it");
  EXPECT_EQ(parse_error("[a, b]: 1\n"),
            "job.yaml:1:1: a key must be plain text, not a list or a map");
  EXPECT_THAT(parse_error(": 1\n"), HasSubstr("a key is missing in front of ':'"));
  EXPECT_EQ(parse_error("a: 1\n---\nb: 2\n"),
            "job.yaml: there is a second document in it (after '---'); a job file has one");
  EXPECT_EQ(parse_error("optimizer:\n\tlr: 1\n"), "job.yaml:2:1: a tab cannot indent; use spaces");
  EXPECT_EQ(parse_error("optimizer:\n  \tlr: 1\n"),
            "job.yaml:2:3: a tab cannot indent; use spaces");
  EXPECT_EQ(parse_error(std::string(300, 'k') + ": 1"), "job.yaml:1:1: this key is too long");
}

TEST(ParseYaml, TabsElsewhereAreFine) {
  EXPECT_EQ(parse("a: 1\t# one\n\t# a comment\n\t\nb: \"x\ty\"\n").find("b")->text(), "x\ty");
}

TEST(ParseYaml, SaysWhereTheYamlIsBroken) {
  EXPECT_THAT(parse_error("a: 1\nb: [1, 2\n"), StartsWith("job.yaml:3:1: not valid YAML: "));
  EXPECT_THAT(parse_error("a: b: c\n"), StartsWith("job.yaml:1:5: not valid YAML: "));
}

TEST(ParseYaml, RefusesBytesThatAreNotText) {
  EXPECT_EQ(parse_error("a: 1\nb: \xff\n"), "job.yaml:2:4: byte 0xff is not UTF-8 text");
  EXPECT_EQ(parse_error(std::string_view("\0\0\0a", 4)),
            "job.yaml:1:1: byte 0x00 is not UTF-8 text");
  EXPECT_THAT(parse_error("a: \x04 1"), HasSubstr("byte 0x04"));
  EXPECT_THAT(parse_error("a: \xC0\xAF"), HasSubstr("byte 0xc0"));      // overlong
  EXPECT_THAT(parse_error("a: \xED\xA0\x80"), HasSubstr("byte 0xed"));  // surrogate
  EXPECT_THAT(parse_error("a: \xE2\x82"), HasSubstr("byte 0xe2"));      // cut short
  EXPECT_EQ(parse("a: \xE2\x82\xAC").find("a")->text(), "\xE2\x82\xAC");
}

TEST(ParseYaml, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(parse(nested(kMostYamlDepth)).is_list());
  EXPECT_EQ(parse_error(nested(kMostYamlDepth + 1)),
            "job.yaml:1:65: lists and maps are nested more than 64 deep");
}

// What a hostile or broken file could be: each returns before the test runner loses patience.
TEST(ParseYaml, HugeInputsReturn) {
  const auto repeat = [](std::string_view piece, size_t size) {
    std::string text;
    while (text.size() + piece.size() <= size) text += piece;
    return text;
  };
  for (const auto* piece :
       {"[",   "{", "{a: ",  "- ", "? ", "a:\n", "a: [", "\"", "'",    "| ", "!",
        "&a ", "%", "---\n", ": ", "[]", "a ",   "#",    "\n", "-\n ", "{}"}) {
    (void)parse_yaml(repeat(piece, kMostYamlBytes / 4), "job.yaml");
  }
  EXPECT_EQ(parse_error(repeat("# x\n", kMostYamlBytes) + "more"),
            "job.yaml: 1048580 bytes are too many for a job file; at most 1048576 are read");
}

TEST(Node, ConvertsScalars) {
  const Node n = parse("{i: -12, e: 1e5, f: 0.5, g: +3, b: true, s: text, q: \"7\", z: }");
  EXPECT_EQ(*n.find("i")->as_int("i"), -12);
  EXPECT_EQ(*n.find("e")->as_int("e"), 100000);
  EXPECT_EQ(*n.find("g")->as_int("g"), 3);
  EXPECT_EQ(*n.find("f")->as_number("f"), 0.5);
  EXPECT_EQ(*n.find("i")->as_number("i"), -12);
  EXPECT_TRUE(*n.find("b")->as_bool("b"));
  EXPECT_EQ(*n.find("q")->as_string("q"), "7");
  EXPECT_EQ(*n.find("i")->as_string("i"), "-12");
  EXPECT_THAT(*parse("[3, 4]").as_ints("shape"), ElementsAre(3, 4));
}

TEST(Node, SaysWhatWasExpectedAndWhatIsThere) {
  const Node n = parse("s: fast\nq: \"7\"\nl: [1, x]\nm: {}\nz:\nf: 1.5\nbig: 1e999\n");
  const auto said = [](const auto& result) { return result.error().message(); };
  EXPECT_EQ(said(n.find("s")->as_number("lr")), "job.yaml:1:4: lr must be a number, not 'fast'");
  EXPECT_EQ(said(n.find("q")->as_int("out")),
            "job.yaml:2:4: out must be a whole number, not '7' in quotes");
  EXPECT_EQ(said(n.find("l")->as_string("name")), "job.yaml:3:4: name must be text, not a list");
  EXPECT_EQ(said(n.find("l")->as_ints("shape")),
            "job.yaml:3:8: shape[1] must be a whole number, not 'x'");
  EXPECT_EQ(said(n.find("m")->as_bool("bias")),
            "job.yaml:4:4: bias must be true or false, not a map");
  EXPECT_THAT(said(n.find("z")->as_string("name")), HasSubstr("name must be text, not empty"));
  EXPECT_EQ(said(n.find("f")->as_int("out")),
            "job.yaml:6:4: out must be a whole number, not '1.5'");
  EXPECT_EQ(said(n.find("big")->as_number("lr")), "job.yaml:7:6: lr must be a number, not '1e999'");
  EXPECT_EQ(said(parse("99999999999999999999").as_int("n")),
            "job.yaml:1:1: n must be a whole number, not '99999999999999999999'");
  EXPECT_EQ(said(Node::scalar("x").as_int("n")), "n must be a whole number, not 'x'");
}

TEST(Node, QuotesCountOnlyWhereTheyMatter) {
  EXPECT_EQ(parse("\"seven\""), parse("seven"));
  EXPECT_FALSE(parse("\"7\"") == parse("7"));
  EXPECT_FALSE(parse("\"true\"") == parse("true"));
  EXPECT_FALSE(parse("\"\"") == parse(""));
}

TEST(Node, WritesShortThingsOnOneLine) {
  const Node n = parse("a:\n  b: 1\n  c:\n  - x\n  - y\nlong:\n- " + std::string(120, 'z') + "\n");
  EXPECT_EQ(n.to_yaml(), "a: { b: 1, c: [x, y] }\nlong:\n  - " + std::string(120, 'z'));
  EXPECT_EQ(parse("{}").to_yaml(), "{}");
  EXPECT_EQ(Node().to_yaml(), "null");
  EXPECT_EQ(Node::scalar("null").to_yaml(), "\"null\"");
  EXPECT_EQ(Node::scalar("7", {}, true).to_yaml(), "\"7\"");
  EXPECT_EQ(Node::scalar("a: b").to_yaml(), "\"a: b\"");
}

// A random tree with texts that are hard to write.
Node random_node(RandomStream& random, int depth) {
  static const std::vector<std::string> texts = {
      "",     "~",     "null", "true", "7",      "-1.5", "1e-8", "-",        "---", "...", "a b",
      " a",   "a ",    "a: b", "a #b", "#",      "[",    "{a}",  "a,b",      "?",   "? a", ":",
      "*x",   "&x",    "!t",   "%",    "@",      "`",    "'",    "\"",       "\\",  "\n",  "a\nb\n",
      "\t",   "\r\n",  "\x01", "\x7f", "\x04",   "<<",   "é",    "\u2028",   "./x", "../", ".inf",
      "0x1F", "1_000", "012",  "yes",  "- item", "-x",   "a:",   "500 steps"};
  const auto any_text = [&] {
    if (random.below(20) == 0) return std::string(random.below(300), 'w');
    return texts[random.below(texts.size())];
  };
  const uint64_t kind = random.below(depth > 0 ? 6 : 3);
  if (kind == 0) return Node();
  if (kind <= 2) return Node::scalar(any_text(), {}, random.below(2) == 0);
  const uint64_t size = random.below(5);
  if (kind == 3) {
    std::vector<Node> items;
    for (uint64_t i = 0; i < size; ++i) items.push_back(random_node(random, depth - 1));
    return Node::list(std::move(items));
  }
  std::vector<std::pair<std::string, Node>> entries;
  for (uint64_t i = 0; i < size; ++i) {
    std::string key = any_text();
    if (key.size() > 250) key.resize(250);
    const auto is_key = [&](const auto& entry) { return entry.first == key; };
    if (std::ranges::any_of(entries, is_key)) continue;
    entries.emplace_back(key, random_node(random, depth - 1));
  }
  return Node::map(std::move(entries));
}

TEST(Node, WhatIsWrittenReadsBackEqual) {
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    RandomStream random(seed, Purpose::kUser);
    const Node node = random_node(random, 5);
    const std::string text = node.to_yaml(static_cast<int>(random.below(3)));
    const auto again = parse_yaml(text, "again.yaml");
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.error().message() << "\n" << text;
    ASSERT_EQ(*again, node) << "seed " << seed << "\n" << text << "\n---\n" << again->to_yaml();
    ASSERT_EQ(parse(node.to_yaml()).to_yaml(), node.to_yaml());
  }
}

TEST(ArgReader, ReadsWhatIsThereAndDefaultsWhatIsNot) {
  const Node n = parse("{out: 10, scale: 0.5, act: relu}");
  ArgReader args(n, "the linear layer");
  EXPECT_EQ(*args.get_int("out"), 10);
  EXPECT_EQ(*args.get_int("in", 3), 3);
  EXPECT_EQ(*args.get_number("scale"), 0.5);
  EXPECT_EQ(*args.get_number("gain", 2), 2);
  EXPECT_EQ(*args.get_bool("bias", true), true);
  EXPECT_EQ(*args.get_string("act"), "relu");
  EXPECT_EQ(*args.get_string("init", "zero"), "zero");
  EXPECT_EQ(args.get("shape"), nullptr);
  EXPECT_TRUE(args.finish().ok());
}

TEST(ArgReader, SaysWhatIsMissingUnknownOrNotAMap) {
  const Node n = parse("layers:\n- linear:\n    out: 10\n    bais: false\n");
  const Node& linear = *n.find("layers")->items()[0].find("linear");
  ArgReader args(linear, "the linear layer");
  EXPECT_EQ(args.get_int("in").error().message(), "job.yaml:3:5: the linear layer needs 'in'");
  EXPECT_EQ(*args.get_int("out"), 10);
  EXPECT_TRUE(*args.get_bool("bias", true));
  EXPECT_EQ(args.finish().error().message(),
            "job.yaml:4:5: the linear layer has no option 'bais' (did you mean 'bias'?)");

  const Node list = parse("[1]");
  ArgReader wrong(list, "the linear layer");
  EXPECT_EQ(wrong.get_int("in").error().message(), "job.yaml:1:1: the linear layer must be a map");
  EXPECT_EQ(wrong.finish().error().message(), "job.yaml:1:1: the linear layer must be a map");
  const Node nothing;
  ArgReader none(nothing, "lenet");
  EXPECT_EQ(*none.get_int("width", 3), 3);
  EXPECT_TRUE(none.finish().ok());
}

}  // namespace
}  // namespace muster::config
