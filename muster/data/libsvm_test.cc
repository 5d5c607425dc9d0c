#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/config/node.h"
#include "muster/data/data_testing.h"
#include "muster/data/formats.h"

namespace muster::data {
namespace {

using testing::as_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::SourceOptions with_features(int64_t features) {
  config::SourceOptions options;
  options.args = config::Node::map({{"features", config::Node::scalar(std::to_string(features))}});
  return options;
}

// features: 0: those of the longest line.
config::SourceOptions with_values(int64_t features = 0) {
  config::SourceOptions options;
  std::vector<std::pair<std::string, config::Node>> args = {
      {"values", config::Node::scalar("true")}};
  if (features > 0) args.emplace_back("features", config::Node::scalar(std::to_string(features)));
  options.args = config::Node::map(std::move(args));
  return options;
}

Result<std::unique_ptr<Dataset>> lines(const std::string& text,
                                       const config::SourceOptions& options = {}) {
  MUSTER_TRY(auto reader, ByteReader::from_memory(as_bytes(text), "x.libsvm"));
  return read_libsvm(std::move(reader), options);
}

std::string failure(const std::string& text, const config::SourceOptions& options = {}) {
  auto dataset = lines(text, options);
  return dataset.ok() ? "" : dataset.error().message();
}

std::vector<int64_t> input(const Dataset& dataset, uint64_t index) {
  std::vector<int64_t> values(dataset.schema().input_elements());
  int64_t target = 0;
  dataset.read(index, reinterpret_cast<std::byte*>(values.data()),
               reinterpret_cast<std::byte*>(&target));
  return values;
}

std::vector<int64_t> targets(const Dataset& dataset) {
  std::vector<int64_t> values(dataset.schema().input_elements());
  std::vector<int64_t> result(dataset.size());
  for (uint64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, reinterpret_cast<std::byte*>(values.data()),
                 reinterpret_cast<std::byte*>(&result[i]));
  }
  return result;
}

TEST(LibsvmTest, ReadsLabelsAndIds) {
  auto dataset = lines("1 5 17:1 3\n0 8\n+1 7:1.0 7:1e0\n0\n");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  const Schema& schema = (*dataset)->schema();
  EXPECT_EQ((*dataset)->size(), 4U);
  EXPECT_EQ(schema.input, DType::kInt64);
  EXPECT_THAT(schema.input_shape, ElementsAre(3)) << "the longest line";
  EXPECT_EQ(schema.target, DType::kInt64);
  EXPECT_TRUE(schema.target_shape.empty());
  EXPECT_EQ(schema.classes, 2);
  EXPECT_EQ(schema.numbers, 0);
  EXPECT_TRUE(schema.has_ids);
  EXPECT_THAT(input(**dataset, 0), ElementsAre(5, 17, 3)) << "in the order of the line";
  EXPECT_THAT(input(**dataset, 1), ElementsAre(8, -1, -1));
  EXPECT_THAT(input(**dataset, 2), ElementsAre(7, 7, -1));
  EXPECT_THAT(input(**dataset, 3), ElementsAre(-1, -1, -1)) << "a label alone is a sample";
  EXPECT_THAT(targets(**dataset), ElementsAre(1, 0, 1, 0));
}

TEST(LibsvmTest, TakesMinusOneForNoClick) {
  EXPECT_THAT(targets(**lines("-1 1\n1 2\n+1 3\n-1 4\n")), ElementsAre(0, 1, 1, 0));
}

TEST(LibsvmTest, SkipsCommentsEmptyLinesAndBlanks) {
  auto dataset = lines(
      "\xef\xbb\xbf# a comment\r\n"
      "\n"
      "  1\t5   6 # 7 8\r\n"
      " \t \n"
      "0 9#10\n"
      "1 2");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->size(), 3U);
  EXPECT_THAT(input(**dataset, 0), ElementsAre(5, 6));
  EXPECT_THAT(input(**dataset, 1), ElementsAre(9, -1));
  EXPECT_THAT(input(**dataset, 2), ElementsAre(2, -1)) << "no end of line at the end";
}

TEST(LibsvmTest, HoldsIdsOfAnySize) {
  auto small = lines("1 4294967295 0\n");
  EXPECT_THAT(input(**small, 0), ElementsAre(4294967295, 0));
  auto large = lines("1 4294967296 9223372036854775807\n0 1\n");
  EXPECT_THAT(input(**large, 0), ElementsAre(4294967296, INT64_MAX));
  EXPECT_THAT(input(**large, 1), ElementsAre(1, -1));
}

TEST(LibsvmTest, TakesTheNumberOfColumns) {
  auto dataset = lines("1 5\n0 6 7\n", with_features(4));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(input(**dataset, 0), ElementsAre(5, -1, -1, -1));
  EXPECT_EQ(failure("1 5\n\n0 6 7 8\n", with_features(2)),
            "'x.libsvm' line 3: it has 3 ids, but `features` is 2; set it to the most that a line "
            "has, or shorten the line");
  EXPECT_THAT(failure("1 5\n", with_features(0)), HasSubstr("features must be from 1 to"));
  config::SourceOptions options;
  options.args = config::parse_yaml("{ feature: 3 }", "job.yaml").value();
  EXPECT_THAT(failure("1 5\n", options),
              HasSubstr("the format libsvm has no option 'feature' (did you mean 'features'?)"));
}

TEST(LibsvmTest, SaysWhereALabelIsWrong) {
  EXPECT_EQ(failure("1 5\n2 5\n"),
            "'x.libsvm' line 2: the label is '2', but labels are 0 and 1, or -1 and 1; correct it");
  for (const char* bad : {"yes", "1.0", "5:1", "-0", "--1", "1,0"}) {
    EXPECT_THAT(failure(fmt::format("1 5\n{} 5\n", bad)), HasSubstr("line 2: the label is"));
  }
  EXPECT_EQ(failure("# labels\n0 5\n1 6\n-1 7\n"),
            "'x.libsvm' line 4: the label is -1, but line 2 has 0; labels are 0 and 1, or -1 and "
            "1: use one of the two");
}

TEST(LibsvmTest, SaysWhereAnIdIsWrong) {
  EXPECT_EQ(failure("1 5\n\n0 6 x7\n"),
            "'x.libsvm' line 3: 'x7' is not an id, a whole number from 0 to 2^63 - 1, alone or "
            "with `:1`; correct it");
  for (const char* bad : {"-1", "1.5", "+3", "9223372036854775808", ":1", "qid:3", "0x10", "1,2"}) {
    EXPECT_THAT(failure(fmt::format("0 {}\n", bad)), HasSubstr("is not an id")) << bad;
  }
  for (const char* bad : {"5:", "5:x", "5:1:1", "5:1x", "5::1"}) {
    EXPECT_THAT(failure(fmt::format("0 {}\n", bad)), HasSubstr("no number behind the colon"))
        << bad;
  }
}

TEST(LibsvmTest, RefusesValuesOtherThanOneUnlessItIsToldOfThem) {
  EXPECT_EQ(failure("1 5:1 6:0.5\n"),
            "'x.libsvm' line 1: '6:0.5' has another value than 1; if ids have values, set `args: { "
            "values: true }` for training and test data");
  for (const char* bad : {"5:0", "5:-1", "5:nan", "5:inf", "5:1.0000001", "5:1e400"}) {
    EXPECT_THAT(failure(fmt::format("0 {}\n", bad)), HasSubstr("values: true")) << bad;
  }
}

// Of the half behind the ids.
std::vector<double> values(const Dataset& dataset, uint64_t index) {
  std::vector<double> found;
  const auto record = input(dataset, index);
  for (size_t i = record.size() / 2; i < record.size(); ++i) {
    found.push_back(std::bit_cast<double>(record[i]));
  }
  return found;
}

TEST(LibsvmTest, ReadsValues) {
  auto dataset = lines("1 5:0.1 17 3:-2.5e3\n0 8:1\n1 7:0 7:16777217\n0\n", with_values());
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  const Schema& schema = (*dataset)->schema();
  EXPECT_TRUE(schema.has_values);
  EXPECT_THAT(schema.input_shape, ElementsAre(6)) << "ids of the longest line, and their values";
  EXPECT_EQ(schema.id_columns(), 3);
  EXPECT_EQ(schema.numbers, 0);
  const auto ids = [&](uint64_t index) {
    auto record = input(**dataset, index);
    record.resize(3);
    return record;
  };
  EXPECT_THAT(ids(0), ElementsAre(5, 17, 3));
  EXPECT_THAT(values(**dataset, 0), ElementsAre(0.1F, 1, -2500)) << "an id alone has the value 1";
  EXPECT_THAT(ids(1), ElementsAre(8, -1, -1));
  EXPECT_THAT(values(**dataset, 1), ElementsAre(1, 0, 0));
  EXPECT_THAT(ids(2), ElementsAre(7, 7, -1)) << "an id of value 0 is an id";
  EXPECT_THAT(values(**dataset, 2), ElementsAre(0, 16777216, 0)) << "rounded to float32";
  EXPECT_THAT(ids(3), ElementsAre(-1, -1, -1));
  EXPECT_THAT(values(**dataset, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(targets(**dataset), ElementsAre(1, 0, 1, 0));

  auto large = lines("1 4294967296:0.5\n", with_values(2));
  ASSERT_TRUE(large.ok()) << large.error().message();
  EXPECT_THAT(input(**large, 0), ElementsAre(4294967296, -1, value_bits(0.5F), 0));
  auto none = lines("1\n", with_values(2));
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_THAT(input(**none, 0), ElementsAre(-1, -1, 0, 0));
}

// Whether they would be kept depends on the mode of the thread that computes with them.
TEST(LibsvmTest, SubnormalValuesAreZero) {
  auto dataset =
      lines("1 1:1e-40 2:-1e-39 3:-0 4:1.1754943508222875e-38 5:1e-310\n", with_values());
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_THAT(input(**dataset, 0), ElementsAre(1, 2, 3, 4, 5, 0, 0, 0, value_bits(0x1p-126F), 0));
}

TEST(LibsvmTest, SaysWhereAValueIsWrong) {
  EXPECT_EQ(failure("1 5\n0 6:nan\n", with_values()),
            "'x.libsvm' line 2: the value in '6:nan' is not finite or does not fit float32; "
            "correct it");
  for (const char* bad : {"inf", "-inf", "-nan", "1e39", "-3.5e38", "1e400"}) {
    EXPECT_THAT(failure(fmt::format("0 6:{}\n", bad), with_values()), HasSubstr("not finite"))
        << bad;
  }
  for (const char* bad : {"", "x", "1:1", "0.5x", ":1"}) {
    EXPECT_THAT(failure(fmt::format("0 6:{}\n", bad), with_values()),
                HasSubstr("no number behind the colon"))
        << bad;
  }
  config::SourceOptions options;
  options.args = config::parse_yaml("{ values: some }", "job.yaml").value();
  EXPECT_THAT(failure("1 5\n", options), HasSubstr("values must be"));
}

TEST(LibsvmTest, ValuesArePartOfTheHash) {
  const auto hash = [&](const std::string& text, const config::SourceOptions& options) {
    return (*lines(text, options))->hash();
  };
  const Hash128 before = hash("1 5:0.5 6\n0 7:2\n", with_values(2));
  EXPECT_EQ(hash("1 5:5e-1 6:1.0\n0 7:2 # the same\n", with_values(2)), before);
  EXPECT_NE(hash("1 5:0.25 6\n0 7:2\n", with_values(2)), before);
  EXPECT_NE(hash("1 5 6:0.5\n0 7:2\n", with_values(2)), before);
  EXPECT_NE(hash("1 5 6\n0 7\n", with_values(2)), hash("1 5 6\n0 7\n", with_features(2)));
  EXPECT_NE(hash("1\n0\n", with_values(2)), hash("1\n0\n", with_features(4)))
      << "records of the same length";
}

TEST(LibsvmTest, TrainingAndTestDataHaveValuesOrNot) {
  const auto with = (*lines("1 5\n", with_values(2)))->schema();
  const auto without = (*lines("1 5\n", with_features(4)))->schema();
  EXPECT_TRUE(check_compatible(with, with).ok());
  EXPECT_EQ(check_compatible(with, without).error().message(),
            "the training data has values of its ids and the test data has none; set `values` in "
            "the `args` of both, or of neither");
  EXPECT_THAT(check_compatible(without, with).error().message(),
              HasSubstr("the test data has values of its ids and the training data has none"));
}

TEST(LibsvmTest, RefusesWhatHoldsNoSamples) {
  EXPECT_THAT(failure("\n"), HasSubstr("'x.libsvm' has no samples"));
  EXPECT_THAT(failure("# 1 5\n"), HasSubstr("has no samples"));
  EXPECT_THAT(failure("1\n0\n"), HasSubstr("has labels, but no ids"));
}

TEST(LibsvmTest, OpensAFileAndTakesAPart) {
  const testing::TempDir dir;
  config::SourceOptions options;
  options.format = "libsvm";
  EXPECT_THAT(Registry::builtin().open(options).error().message(), HasSubstr("`path`"));
  options.path = dir.write("x.gz", testing::gzip("1 1 2 3\n0 2\n1 3\n0 4\n"));
  options.part = {0.5, 1};
  options.limit = 1;
  auto dataset = Registry::builtin().open(options);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message();
  EXPECT_EQ((*dataset)->size(), 1U);
  EXPECT_THAT(input(**dataset, 0), ElementsAre(3, -1, -1)) << "columns of the whole file";
}

TEST(LibsvmTest, TheHashIsOfTheSamplesInUse) {
  config::SourceOptions options = with_features(3);
  const auto hash = [&](const std::string& text) { return (*lines(text, options))->hash(); };
  const Hash128 before = hash("1 5 6\n0 7\n");
  EXPECT_EQ(hash("# the same\n+1 5:1 6\n-1 7 # ids\n"), before);
  EXPECT_NE(hash("1 5 6\n1 7\n"), before);
  EXPECT_NE(hash("1 5 6\n0 8\n"), before);
  EXPECT_NE(hash("1 5\n0 6 7\n"), before) << "other lines";
  EXPECT_NE(hash("1 6 5\n0 7\n"), before) << "another order";
  options.limit = 2;
  EXPECT_EQ(hash("1 5 6\n0 7\n1 8\n"), before);
  EXPECT_EQ(hash("1 5 6\n0 7\n1 99999999999\n"), before) << "stored in another form";
  options.args = config::Node();
  EXPECT_NE(hash("1 5 6\n0 7\n"), before) << "other columns";
}

}  // namespace
}  // namespace muster::data
