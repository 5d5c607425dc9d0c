// jsonl, csv and libsvm by ranges of lines.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/config/source.h"
#include "muster/data/blocks/block_formats.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/data/blocks/object_window.h"
#include "muster/data/data_testing.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using testing::args_of;
using ::testing::ElementsAre;
using testing::failure;
using ::testing::HasSubstr;
using testing::read;

config::SourceOptions options_of(const std::string& format, std::string_view args = "{}") {
  config::SourceOptions options;
  options.format = format;
  options.classes = 3;
  options.args = args_of(args);
  return options;
}

// The same samples however the text is cut.
void expect_same_in_all_cuts(const std::string& text, const config::SourceOptions& options) {
  auto whole = read(text, options);
  ASSERT_TRUE(whole.ok()) << whole.error().message();
  for (const uint64_t block_bytes : {1, 10, 25, 60, 1000}) {
    auto cut = read(text, options, block_bytes);
    ASSERT_TRUE(cut.ok()) << block_bytes << ": " << cut.error().message();
    EXPECT_EQ(cut->inputs, whole->inputs) << block_bytes;
    EXPECT_EQ(cut->ids, whole->ids) << block_bytes;
    EXPECT_EQ(cut->targets, whole->targets) << block_bytes;
  }
}

TEST(JsonlTest, AListScalesEachColumnOrChannel) {
  const std::string text = R"({"x": [1, 2], "y": [3, 4], "label": 1})";
  auto options = options_of("jsonl", "{ input: [x, y] }");
  options.mean = {1, 2, 3, 4};
  options.deviation = {1, 2, 4, 8};
  auto columns = read(text, options);
  ASSERT_TRUE(columns.ok()) << columns.error().message();
  EXPECT_THAT(columns->inputs[0], ElementsAre(0, 0, 0, 0));
  options = options_of("jsonl", "{ input: [x, y], shape: [2, 1, 2] }");
  options.mean = {0, 1};
  options.deviation = {1, 2};
  auto channels = read(text, options);
  ASSERT_TRUE(channels.ok()) << channels.error().message();
  EXPECT_THAT(channels->inputs[0], ElementsAre(1, 2, 1, 1.5F));
  options.mean = {0, 1, 2};
  options.deviation = {1};
  EXPECT_THAT(failure(text, options), HasSubstr("the input has the shape {2, 1, 2}"));
}

TEST(JsonlTest, ReadsNumbersByKey) {
  const std::string text =
      "{\"x\": [1, 2.5, [true, false]], \"label\": 2, \"text\": \"a {\"}\r\n\n"
      "{\"label\": 0, \"x\": [-1e3, 0, 1, 2]}";
  const auto options = options_of("jsonl", "{ input: x }");
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->inputs[0], ElementsAre(1, 2.5F, 1, 0));
  EXPECT_THAT(all->inputs[1], ElementsAre(-1000, 0, 1, 2));
  EXPECT_THAT(all->targets, ElementsAre(2, 0));
  expect_same_in_all_cuts(text, options);
  auto gzipped = read(testing::gzip(text), options, 1);
  ASSERT_TRUE(gzipped.ok()) << gzipped.error().message();
  EXPECT_EQ(gzipped->inputs, all->inputs);
  EXPECT_EQ(gzipped->extents.size(), 1U);
}

TEST(JsonlTest, SaysWhatIsWrong) {
  const auto options = options_of("jsonl", "{ input: x }");
  EXPECT_THAT(failure("{\"x\": 1, \"label\": 1}\n{\"x\": 1,\n", options),
              HasSubstr("sample 1 of the block: not JSON from character"));
  EXPECT_THAT(failure("[1, 2]\n", options), HasSubstr("not a JSON object"));
  EXPECT_THAT(failure("{\"other\": 1, \"label\": 1}\n", options),
              HasSubstr("no key 'x'; there are: other, label"));
  EXPECT_THAT(failure("{\"x\": 1, \"label\": \"cat\"}\n", options),
              HasSubstr("the key 'label' is not a number, or a list of numbers"));
  EXPECT_THAT(failure("{\"x\": [1, \"two\", 3], \"label\": 1}\n", options),
              HasSubstr("the key 'x' is not a number"));
  EXPECT_THAT(failure("{\"x\": null, \"label\": 1}\n", options),
              HasSubstr("the key 'x' is not a number"));
  EXPECT_THAT(failure("{\"x\": 1, \"label\": 1}\n{\"x\": [1, 2], \"label\": 1}\n", options),
              HasSubstr("key 'x' has 2 numbers"));
  EXPECT_THAT(failure("{\"x\": 1, \"label\": 1.5}\n", options), HasSubstr("the label is 1.5"));
  const std::string deep(100000, '[');
  EXPECT_THAT(failure("{\"x\": " + deep + "\n", options), HasSubstr("not JSON"));
}

TEST(JsonlTest, ReadsListsOfIdsOfAnyLength) {
  const std::string text =
      "{\"x\": [3, 9007199254740991, 3], \"v\": [0.5, -2, 1e-3], \"label\": 1}\n"
      "{\"x\": [], \"v\": [], \"label\": 0}\n"
      "{\"x\": 7, \"v\": 1, \"label\": 1}\n";
  const auto ids = options_of("jsonl", "{ ids: x, features: 4 }");
  auto all = read(text, ids);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ(all->schema.input, DType::kInt64);
  EXPECT_THAT(all->schema.input_shape, ElementsAre(4));
  EXPECT_TRUE(all->schema.has_ids && all->schema.ids_are_a_bag);
  EXPECT_FALSE(all->schema.has_values);
  EXPECT_EQ(all->schema.classes, 3);
  EXPECT_THAT(all->ids[0], ElementsAre(3, 9007199254740991, 3, -1));
  EXPECT_THAT(all->ids[1], ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(all->ids[2], ElementsAre(7, -1, -1, -1)) << "a number is a list of one";
  EXPECT_THAT(all->targets, ElementsAre(1, 0, 1));
  expect_same_in_all_cuts(text, ids);

  const auto values = options_of("jsonl", "{ ids: x, values: v, features: 3, first_label: -1 }");
  auto with = read(text, values);
  ASSERT_TRUE(with.ok()) << with.error().message();
  EXPECT_TRUE(with->schema.has_values);
  EXPECT_EQ(with->schema.id_columns(), 3);
  EXPECT_THAT(with->ids[0], ElementsAre(3, 9007199254740991, 3, value_bits(0.5F), value_bits(-2),
                                        value_bits(1e-3F)));
  EXPECT_THAT(with->ids[1], ElementsAre(-1, -1, -1, 0, 0, 0));
  EXPECT_THAT(with->targets, ElementsAre(2, 1, 2));
  expect_same_in_all_cuts(text, values);
}

TEST(JsonlTest, ReadsSamplesWithoutLabels) {
  auto options = options_of("jsonl", "{ input: x }");
  options.label = config::kNoLabel;
  auto all = read("{\"x\": [1, 2]}\n{\"x\": [3, 4], \"label\": \"unused\"}\n", options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->inputs[1], ElementsAre(3, 4));
  EXPECT_THAT(all->targets, ElementsAre(-1, -1));
  options.target = "value";
  all = read("{\"x\": [1, 2]}\n", options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_TRUE(std::isnan(all->targets[0]));
  options = options_of("jsonl", "{ ids: x, features: 3 }");
  options.label = config::kNoLabel;
  all = read("{\"x\": [1, 2]}\n", options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->ids[0], ElementsAre(1, 2, -1));
}

TEST(CsvBlocksTest, ReadsSamplesWithoutLabels) {
  auto options = options_of("csv");
  options.label = config::kNoLabel;
  const std::string text = "a,b\n1,2\n3,4\n5,6\n";
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->schema.input_shape, ElementsAre(2));
  EXPECT_THAT(all->inputs[2], ElementsAre(5, 6));
  EXPECT_THAT(all->targets, ElementsAre(-1, -1, -1));
  expect_same_in_all_cuts(text, options);
  options.header = false;
  EXPECT_TRUE(read("1\n2\n", options).ok()) << "one column is enough";
  options.target = "value";
  all = read("1\n2\n", options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_TRUE(std::isnan(all->targets[1]));
}

TEST(JsonlTest, ReadsListsOfTokens) {
  const std::string text =
      "{\"t\": [3, 0, 9, 1]}\n"
      "{\"t\": [0, 1, 2, 3], \"label\": \"unused\"}\n";
  auto options = options_of("jsonl", "{ tokens: t }");
  options.classes = 10;
  options.context = 3;
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ(all->schema.input, DType::kInt64);
  EXPECT_THAT(all->schema.input_shape, ElementsAre(3));
  EXPECT_THAT(all->schema.target_shape, ElementsAre(3));
  EXPECT_FALSE(all->schema.has_ids);
  EXPECT_EQ(all->schema.classes, 10);
  EXPECT_THAT(all->ids[0], ElementsAre(3, 0, 9));
  EXPECT_THAT(all->ids[1], ElementsAre(0, 1, 2));
  EXPECT_THAT(all->targets, ElementsAre(1, 3)) << "the last tokens";
  expect_same_in_all_cuts(text, options);

  EXPECT_THAT(failure("{\"t\": [1, 2, 3]}\n", options),
              HasSubstr("'t' has 3 tokens, but with `context: 3` a record must have 4"));
  auto long_ones = options;
  long_ones.context = int64_t{1} << 60;
  EXPECT_THAT(failure(text, long_ones), HasSubstr("'t' has 4 tokens, but with `context: 1152"));
  for (const char* bad : {"-1", "0.5", "10", "1e300"}) {
    EXPECT_THAT(failure(fmt::format("{{\"t\": [1, 2, 3, {}]}}\n", bad), options),
                HasSubstr("tokens are whole numbers from 0 to 9"))
        << bad;
  }
  EXPECT_THAT(failure("{\"x\": [1, 2, 3, 4]}\n", options), HasSubstr("there is no key 't'"));
  for (const char* more : {"input: x", "ids: x", "size: 3", "first_label: 1"}) {
    options.args = args_of(fmt::format("{{ tokens: t, {} }}", more));
    EXPECT_NE(failure(text, options), "") << more;
  }
  options.args = args_of("{ tokens: t }");
  auto other = options;
  other.target = "value";
  EXPECT_THAT(failure(text, other), HasSubstr("the target of tokens is the next token"));
  other = options;
  other.classes = 0;
  EXPECT_THAT(failure(text, other), HasSubstr("needs `classes`"));
}

TEST(JsonlTest, SaysWhatIsWrongWithListsOfIds) {
  const auto ids = options_of("jsonl", "{ ids: x, values: v, features: 2 }");
  const auto line = [](const std::string& x, const std::string& v) {
    return fmt::format("{{\"x\": {}, \"v\": {}, \"label\": 1}}\n", x, v);
  };
  EXPECT_EQ(failure(line("[1, 2]", "[1, 2]"), ids), "");
  EXPECT_THAT(failure(line("[1, 2, 3]", "[1, 2, 3]"), ids),
              HasSubstr("sample 0 of the block: 'x' has 3 ids, but `features` is 2"));
  for (const char* bad : {"-1", "0.5", "9007199254740992", "18446744073709551615", "1e300"}) {
    EXPECT_THAT(failure(line(bad, "1"), ids), HasSubstr("which is not an id")) << bad;
  }
  EXPECT_THAT(failure(line("[1, 2]", "[1]"), ids),
              HasSubstr("'v' has 1 values, but 'x' has 2 ids; each needs one"));
  EXPECT_THAT(failure(line("1", "1e39"), ids), HasSubstr("does not fit float32"));
  EXPECT_THAT(failure(line("\"a\"", "1"), ids), HasSubstr("the key 'x' is not a number"));
  EXPECT_THAT(failure("{\"x\": 1, \"label\": 1}\n", ids), HasSubstr("there is no key 'v'"));

  const std::string good = line("1", "1");
  EXPECT_THAT(failure(good, options_of("jsonl", "{ ids: x }")), HasSubstr("`features`"));
  EXPECT_THAT(failure(good, options_of("jsonl", "{ ids: x, values: x, features: 2 }")),
              HasSubstr("must be two fields"));
  EXPECT_THAT(failure(good, options_of("jsonl", "{ ids: x, input: v, features: 2 }")),
              HasSubstr("ids and input cannot both be given"));
  EXPECT_THAT(failure(good, options_of("jsonl", "{ ids: x, size: 4, features: 2 }")),
              HasSubstr("the format jsonl has no option 'size'"));
  auto scaled = ids;
  scaled.mean = {0.5};
  EXPECT_THAT(failure(good, scaled), HasSubstr("not scaled"));
}

TEST(GunzipTest, TakesNoMoreMemoryThanItMay) {
  const std::string plain(300000, 'x');
  const std::string packed = testing::gzip(plain);
  const auto exact = gunzip(testing::as_bytes(packed), plain.size());
  ASSERT_TRUE(exact.ok()) << exact.error().message();
  EXPECT_EQ(exact->size(), plain.size());
  EXPECT_LE(exact->capacity(), plain.size() + 1);
  const auto larger = gunzip(testing::as_bytes(packed), plain.size() - 1);
  ASSERT_FALSE(larger.ok());
  EXPECT_THAT(larger.error().message(), HasSubstr("unpack it, or write smaller files"));
}

TEST(GunzipTest, AnObjectThatIsTooLargeIsNotRead) {
  const ObjectReader object = {.name = "big.gz",
                               .size = uint64_t{1} << 50,
                               .read = [](uint64_t, std::span<std::byte> into) -> Status {
                                 const std::string start = "\x1f\x8b\x08";
                                 std::memcpy(into.data(), start.data(), start.size());
                                 return {};
                               }};
  for (const std::string name : {"jsonl", "tfrecord"}) {
    const auto options = options_of(name, "{ input: x }");
    const auto format = *builtin_block_formats().at(name)(options);
    const auto extents = format->cut(object, 1 << 20);
    ASSERT_FALSE(extents.ok());
    EXPECT_THAT(extents.error().message(), HasSubstr("'big.gz': it is larger than 1.1 GB"));
  }
}

TEST(CsvBlocksTest, EqualsTheFormatThatReadsWholeFiles) {
  const std::string text =
      "\xef\xbb\xbf"
      "a,\"the, \"\"label\"\"\",b\r\n1,0,2\r\n\"3\n\",1,4\n\n5,2,\"6\"\n7,1,8";
  auto options = options_of("csv");
  options.label = "the, \"label\"";
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->inputs[1], ElementsAre(3, 4));
  EXPECT_THAT(all->targets, ElementsAre(0, 1, 2, 1));
  expect_same_in_all_cuts(text, options);
  auto reader = ByteReader::from_memory(testing::as_bytes(text), "x.csv");
  auto dataset = read_csv(*std::move(reader), options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->schema().input_shape, all->schema.input_shape);
  EXPECT_EQ((*dataset)->schema().classes, all->schema.classes);
  for (uint64_t i = 0; i < (*dataset)->size(); ++i) {
    std::vector<float> input(2);
    int64_t target = 0;
    (*dataset)->read(i, reinterpret_cast<std::byte*>(input.data()),
                     reinterpret_cast<std::byte*>(&target));
    EXPECT_EQ(input, all->inputs[i]);
    EXPECT_EQ(static_cast<double>(target), all->targets[i]);
  }
}

TEST(CsvBlocksTest, ReadsRecordsThatDoNotFitAWindow) {
  std::string text = "x,label\n";
  for (int i = 0; i < 40; ++i) {
    text += "\"" + std::string(200000 + 4000 * i, '\n') + std::to_string(i) + "\",1\n";
  }
  auto options = options_of("csv");
  auto all = read(text, options, 300000);
  ASSERT_TRUE(all.ok()) << all.error().message();
  ASSERT_EQ(all->inputs.size(), 40U);
  EXPECT_GT(all->extents.size(), 7U);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(all->inputs[i][0], static_cast<float>(i));
}

// Each read may be a request to a server.
TEST(CsvBlocksTest, ReadsASmallFileOnceForItsRecordsAndOnceForItsColumns) {
  const std::string text = "a,b\n1,2\n3,4\n";
  auto object = testing::object_of(text);
  int reads = 0;
  object.read = [&reads, inner = object.read](uint64_t offset, std::span<std::byte> into) {
    ++reads;
    return inner(offset, into);
  };
  const auto format = *make_csv_blocks(options_of("csv"));
  EXPECT_TRUE(format->cut(object, 1 << 20).ok());
  EXPECT_TRUE(format->about(object).ok());
  EXPECT_EQ(reads, 2);
}

TEST(CsvBlocksTest, SaysWhatIsWrong) {
  auto options = options_of("csv");
  EXPECT_THAT(failure("a,b\n1,2\n3,x\n", options),
              HasSubstr("the block, line 2, column 1 ('b'): 'x' is not a number"));
  EXPECT_THAT(failure("a,b\n1,\"2\n", options), HasSubstr("never closed"));
  EXPECT_THAT(failure("a,b\n1,2\n1,2,3\n", options), HasSubstr("has 3 columns"));
  EXPECT_THAT(failure(testing::gzip("a,b\n1,2\n"), options), HasSubstr("gzipped"));
  options.label = "c";
  EXPECT_THAT(failure("a,b\n1,2\n", options), HasSubstr("no column 'c'"));
  options.classes = 0;
  EXPECT_THAT(failure("a,b\n1,2\n", options), HasSubstr("needs `classes`"));
}

TEST(LibsvmBlocksTest, EqualsTheFormatThatReadsWholeFiles) {
  const std::string text = "1 5 17:1 3\n# only a comment\n0 8\n\n+1 7:1.0 # more\n0\n";
  const auto options = options_of("libsvm", "{ features: 4 }");
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->ids[0], ElementsAre(5, 17, 3, -1));
  EXPECT_THAT(all->ids[3], ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(all->targets, ElementsAre(1, 0, 1, 0));
  expect_same_in_all_cuts(text, options);
  expect_same_in_all_cuts(testing::gzip(text), options);
}

TEST(LibsvmBlocksTest, ValuesAreThoseOfWholeFiles) {
  const std::string text = "1 5:0.1 17 3:-4\n# only a comment\n0 8:1e-3\n\n+1 7:2 # more\n0\n";
  const auto options = options_of("libsvm", "{ features: 4, values: true }");
  auto all = read(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_THAT(all->ids[0], ElementsAre(5, 17, 3, -1, value_bits(0.1F), value_bits(1),
                                       value_bits(-4), value_bits(0)));
  expect_same_in_all_cuts(text, options);
  expect_same_in_all_cuts(testing::gzip(text), options);
  auto reader = ByteReader::from_memory(testing::as_bytes(text), "x.libsvm");
  auto dataset = read_libsvm(*std::move(reader), options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->schema().input_shape, all->schema.input_shape);
  EXPECT_TRUE((*dataset)->schema().has_values && all->schema.has_values);
  ASSERT_EQ((*dataset)->size(), all->ids.size());
  for (uint64_t i = 0; i < (*dataset)->size(); ++i) {
    std::vector<int64_t> input(8);
    int64_t target = 0;
    (*dataset)->read(i, reinterpret_cast<std::byte*>(input.data()),
                     reinterpret_cast<std::byte*>(&target));
    EXPECT_EQ(input, all->ids[i]);
    EXPECT_EQ(static_cast<double>(target), all->targets[i]);
  }
  EXPECT_THAT(failure("1 5:nan\n", options), HasSubstr("the block, line 1: the value in '5:nan'"));
}

TEST(LibsvmBlocksTest, SaysWhatIsWrong) {
  const auto options = options_of("libsvm", "{ features: 2 }");
  EXPECT_THAT(failure("1 5:2\n", options), HasSubstr("values: true"));
  EXPECT_THAT(failure("1 5\n1 a\n", options), HasSubstr("the block, line 2: 'a' is not an id"));
  EXPECT_THAT(failure("1 5 6 7\n", options), HasSubstr("it has 3 ids"));
  EXPECT_THAT(failure("1 5\n", options_of("libsvm")), HasSubstr("features"));
}

}  // namespace
}  // namespace muster::data
