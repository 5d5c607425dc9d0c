#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/csv_scanner.h"
#include "muster/data/data_testing.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using testing::as_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Records = std::vector<std::vector<std::string>>;

Records scan(std::string_view text, char separator = ',') {
  CsvScanner scanner(text, separator, "'x.csv'");
  Records records;
  std::vector<std::string_view> fields;
  while (true) {
    auto more = scanner.next(fields);
    EXPECT_TRUE(more.ok()) << more.error().message();
    if (!more.ok() || !*more) return records;
    records.emplace_back(fields.begin(), fields.end());
  }
}

TEST(CsvScannerTest, CutsFieldsAndRecords) {
  EXPECT_EQ(scan("a,b\nc,d\n"), (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(scan("a,b\nc,d"), (Records{{"a", "b"}, {"c", "d"}})) << "no end of line at the end";
  EXPECT_EQ(scan("a,b\r\nc,d\r\n"), (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(scan("a;b", ';'), (Records{{"a", "b"}}));
  EXPECT_EQ(scan("a\tb", '\t'), (Records{{"a", "b"}}));
  EXPECT_EQ(scan(",\n,,\n"), (Records{{"", ""}, {"", "", ""}})) << "empty fields are fields";
  EXPECT_EQ(scan("a,\n"), (Records{{"a", ""}}));
  EXPECT_EQ(scan("a,"), (Records{{"a", ""}}));
  EXPECT_EQ(scan(""), Records{});
}

TEST(CsvScannerTest, SkipsEmptyLinesAndTheByteOrderMark) {
  EXPECT_EQ(scan("\n\na,b\n\r\n\nc,d\n\n"), (Records{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(scan("\xef\xbb\xbf"
                 "a,b"),
            (Records{{"a", "b"}}));
}

TEST(CsvScannerTest, UnderstandsQuotes) {
  EXPECT_EQ(scan("\"a,b\",c"), (Records{{"a,b", "c"}}));
  EXPECT_EQ(scan("\"a\"\"b\"\"\",c"), (Records{{"a\"b\"", "c"}}));
  EXPECT_EQ(scan("\"a\nb\r\nc\",d\r\ne,f"), (Records{{"a\nb\r\nc", "d"}, {"e", "f"}}));
  EXPECT_EQ(scan("\"\",\"\""), (Records{{"", ""}}));
  EXPECT_EQ(scan("\"\"\"\""), (Records{{"\""}}));
  EXPECT_EQ(scan("a\"b,c"), (Records{{"a\"b", "c"}})) << "a quote inside a plain field is itself";
  EXPECT_EQ(scan("a\rb,c\r"), (Records{{"a\rb", "c\r"}})) << "CR alone ends no line";
}

TEST(CsvScannerTest, CountsLinesAlsoInsideQuotes) {
  CsvScanner scanner("a\n\n\"b\nb\"\nc", ',', "x");
  std::vector<std::string_view> fields;
  std::vector<uint64_t> lines;
  while (*scanner.next(fields)) lines.push_back(scanner.line());
  EXPECT_THAT(lines, ElementsAre(1, 3, 5));
}

TEST(CsvScannerTest, RefusesBrokenQuotes) {
  const auto failure = [](std::string_view text) {
    CsvScanner scanner(text, ',', "'x.csv'");
    std::vector<std::string_view> fields;
    while (true) {
      auto more = scanner.next(fields);
      if (!more.ok()) return more.error().message();
      if (!*more) return std::string();
    }
  };
  EXPECT_THAT(failure("a\n\"b\nc"), HasSubstr("'x.csv' line 2: a quote is opened"));
  EXPECT_THAT(failure("a\n\"b\"c\n"), HasSubstr("'x.csv' line 2: there is text after"));
}

Result<std::unique_ptr<Dataset>> table(const std::string& text,
                                       const config::SourceOptions& options = {}) {
  MUSTER_TRY(auto reader, ByteReader::from_memory(as_bytes(text), "x.csv"));
  return read_csv(std::move(reader), options);
}

std::string failure(const std::string& text, const config::SourceOptions& options = {}) {
  auto dataset = table(text, options);
  return dataset.ok() ? "" : dataset.error().message();
}

std::vector<float> input(const Dataset& dataset, uint64_t index) {
  std::vector<float> values(dataset.schema().input_elements());
  int64_t target = 0;
  dataset.read(index, reinterpret_cast<std::byte*>(values.data()),
               reinterpret_cast<std::byte*>(&target));
  return values;
}

template <typename T>
std::vector<T> targets(const Dataset& dataset) {
  std::vector<float> values(dataset.schema().input_elements());
  std::vector<T> result(dataset.size());
  for (uint64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, reinterpret_cast<std::byte*>(values.data()),
                 reinterpret_cast<std::byte*>(&result[i]));
  }
  return result;
}

TEST(CsvTest, ReadsInputsAndClasses) {
  auto dataset = table("width,height,kind\n1.5, -2 ,0\n\"3\",4e1,2\n+5,.5,1.0\n");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  const Schema& schema = (*dataset)->schema();
  EXPECT_THAT(schema.input_shape, ElementsAre(2));
  EXPECT_EQ(schema.classes, 3);
  EXPECT_EQ(schema.target, DType::kInt64);
  EXPECT_TRUE(schema.target_shape.empty());
  EXPECT_THAT(input(**dataset, 0), ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(input(**dataset, 1), ElementsAre(3.0F, 40.0F));
  EXPECT_THAT(input(**dataset, 2), ElementsAre(5.0F, 0.5F));
  EXPECT_THAT(targets<int64_t>(**dataset), ElementsAre(0, 2, 1));
}

TEST(CsvTest, ReadsValues) {
  config::SourceOptions options;
  options.target = "value";
  options.label = "price";
  options.mean = {1};
  options.deviation = {2};
  auto dataset = table("price,size\n-1.5,3\n2,5\n", options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->schema().target, DType::kFloat32);
  EXPECT_THAT((*dataset)->schema().target_shape, ElementsAre(1));
  EXPECT_EQ((*dataset)->schema().classes, 0);
  EXPECT_THAT(targets<float>(**dataset), ElementsAre(-1.5F, 2.0F)) << "labels are not scaled";
  EXPECT_THAT(input(**dataset, 0), ElementsAre(1.0F));
  EXPECT_THAT((*dataset)->schema().padding, ElementsAre(-0.5F));
}

TEST(CsvTest, AListScalesEachColumn) {
  config::SourceOptions options;
  options.label = "price";
  options.target = "value";
  options.mean = {1, 10};
  options.deviation = {2, 5};
  const std::string text = "width,price,size\n3,7,15\n2,8,0\n";
  auto dataset = table(text, options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(input(**dataset, 0), ElementsAre(1.0F, 1.0F));
  EXPECT_THAT(input(**dataset, 1), ElementsAre(0.5F, -2.0F));
  options.mean = {1, 10, 100};
  options.deviation = {2};
  dataset = table(text, options);
  ASSERT_FALSE(dataset.ok());
  EXPECT_THAT(dataset.error().message(),
              HasSubstr("has 3 numbers, one for each channel or column"));
}

TEST(CsvTest, FindsTheLabel) {
  config::SourceOptions options;
  const auto label_targets = [&](std::string label, bool header, const std::string& text) {
    options.label = std::move(label);
    options.header = header;
    auto dataset = table(text, options);
    EXPECT_TRUE(dataset.ok()) << dataset.error().message();
    return targets<int64_t>(**dataset);
  };
  EXPECT_THAT(label_targets("", true, "a,b,c\n1,2,3\n"), ElementsAre(3));
  EXPECT_THAT(label_targets("a", true, "a,b,c\n1,2,3\n"), ElementsAre(1));
  EXPECT_THAT(label_targets("1", true, "a,b,c\n1,2,3\n"), ElementsAre(2)) << "numbers from 0";
  EXPECT_THAT(label_targets("0", false, "1,2,3\n"), ElementsAre(1));
  EXPECT_THAT(label_targets("2", true, "2,x,y\n1,5,3\n"), ElementsAre(1)) << "a name goes first";
  EXPECT_THAT(label_targets("", true, "0,1,2\n1,5,3\n"), ElementsAre(3)) << "numbered columns";

  options.label = "hight";
  options.header = true;
  EXPECT_THAT(failure("width,height\n1,2\n", options), HasSubstr("did you mean 'height'?"));
  options.label = "7";
  EXPECT_EQ(failure("a,b\n1,2\n", options),
            "'x.csv' has the columns 0 to 1, so `label: 7` is not there");
  options.label = "a";
  EXPECT_THAT(failure("a,a\n1,2\n", options), HasSubstr("has 2 columns called 'a'"));
}

TEST(CsvTest, SaysWhereAValueIsWrong) {
  EXPECT_EQ(failure("a,b,c\n1,2,0\n1,,0\n"),
            "'x.csv' line 3, column 1 ('b'): the value is missing; fill it in, or leave out the "
            "line or the column");
  EXPECT_THAT(failure("a,b\n1 x,0\n"),
              HasSubstr("'x.csv' line 2, column 0 ('a'): '1 x' is not a number"));
  EXPECT_THAT(failure("a,b\n1,0\n\n1,2,3\n"),
              HasSubstr("line 4 has 3 columns, the lines before it 2"));
  for (const char* bad : {"nan", "inf", "-inf", "1e39", "1e400"}) {
    EXPECT_THAT(failure(fmt::format("a,b\n{},0\n", bad)), HasSubstr("not finite or does not fit"));
  }
  for (const char* bad : {"NA", "?", "1,5", "0x10", "1e", "--1", "+-1", "1.2.3"}) {
    EXPECT_NE(failure(fmt::format("a,b\n\"{}\",0\n", bad)), "") << bad;
  }
  config::SourceOptions plain;
  plain.header = false;
  EXPECT_THAT(failure("a,b\n1,0\n", plain),
              HasSubstr("line 1, column 0 (the first is 0): 'a' is not a number; if the first line "
                        "holds the names of the columns, set `header: true`"));
  EXPECT_THAT(failure("1,0\n2,1\n"), HasSubstr("set `header: false`"));
}

TEST(CsvTest, ChecksClasses) {
  EXPECT_THAT(failure("a,b\n1,rose\n"), HasSubstr("number the classes from 0"));
  EXPECT_THAT(failure("a,b\n1,0.5\n"), HasSubstr("the label is 0.5, but a class is a whole"));
  EXPECT_THAT(failure("a,b\n1,-1\n"), HasSubstr("the label is -1"));
  EXPECT_THAT(failure("a,b\n1,1e12\n"), HasSubstr("no likely class"));
  config::SourceOptions options;
  options.classes = 3;
  EXPECT_EQ(failure("a,b\n1,2\n1,3\n", options),
            "'x.csv' line 3, column 1 ('b'): the label is 3, but labels go from 0 to 2; correct "
            "the file, or `classes`");
  EXPECT_EQ((*table("a,b\n1,1\n", options))->schema().classes, 3);
}

TEST(CsvTest, RefusesWhatHoldsNoSamples) {
  EXPECT_THAT(failure("a,b\n"), HasSubstr("has no samples"));
  EXPECT_THAT(failure("\n\n"), HasSubstr("has no samples"));
  EXPECT_THAT(failure("a;b\n1;2\n"), HasSubstr("check `separator` (it is ',')"));
  config::SourceOptions options;
  options.separator = "\"";
  EXPECT_THAT(failure("a,b\n1,2\n", options), HasSubstr("`separator` must be one character"));
}

TEST(CsvTest, OpensAFileAndTakesAPart) {
  const testing::TempDir dir;
  config::SourceOptions options;
  options.format = "csv";
  EXPECT_THAT(Registry::builtin().open(options).error().message(), HasSubstr("`path`"));
  options.path = dir.write("x.csv.gz", testing::gzip("a,b\n1,0\n2,1\n3,4\n4,3\n"));
  options.part = {0.5, 1};
  options.limit = 1;
  auto dataset = Registry::builtin().open(options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(targets<int64_t>(**dataset), ElementsAre(4));
  EXPECT_EQ((*dataset)->schema().classes, 5) << "counted over the whole file";
}

}  // namespace
}  // namespace muster::data
