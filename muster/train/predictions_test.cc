#include "muster/train/predictions.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace muster::train {
namespace {

std::string text_of(const Predictions& predictions, uint64_t first, OutputFormat format) {
  std::string text = header_of(predictions, format);
  append_rows(predictions, first, format, text);
  return text;
}

TEST(Predictions, Classes) {
  Predictions p;
  p.count = 2;
  p.classes = {7, 0};
  p.probabilities = {0.1F, 1.0F};
  p.labels = {7, 3};
  EXPECT_EQ(text_of(p, 40, OutputFormat::kCsv),
            "sample,class,probability,label\n40,7,0.1,7\n41,0,1,3\n");
  EXPECT_EQ(text_of(p, 40, OutputFormat::kJson),
            R"({"sample":40,"class":7,"probability":0.1,"label":7})"
            "\n"
            R"({"sample":41,"class":0,"probability":1,"label":3})"
            "\n");
  EXPECT_EQ(to_json(p, 1, 41)["label"], 3);
}

TEST(Predictions, Values) {
  Predictions p;
  p.count = 1;
  p.values = {-1.5F};
  p.targets = {1e-7F};
  EXPECT_EQ(text_of(p, 0, OutputFormat::kCsv), "sample,value,target\n0,-1.5,1e-07\n");
  EXPECT_EQ(text_of(p, 0, OutputFormat::kJson), "{\"sample\":0,\"value\":-1.5,\"target\":1e-07}\n");
}

TEST(Predictions, OfDataWithoutLabels) {
  Predictions p;
  p.count = 1;
  p.classes = {7};
  p.probabilities = {0.5F};
  EXPECT_EQ(text_of(p, 40, OutputFormat::kCsv), "sample,class,probability\n40,7,0.5\n");
  EXPECT_EQ(text_of(p, 40, OutputFormat::kJson),
            "{\"sample\":40,\"class\":7,\"probability\":0.5}\n");
  EXPECT_FALSE(to_json(p, 0, 40).contains("label"));
  EXPECT_EQ(form_of(p).columns.size(), 3U);
  EXPECT_EQ(text_of(p, 40, OutputFormat::kParquet).size(), form_of(p).row_bytes());
  Predictions v;
  v.count = 1;
  v.values = {-1.5F};
  EXPECT_EQ(text_of(v, 0, OutputFormat::kCsv), "sample,value\n0,-1.5\n");
  EXPECT_EQ(text_of(v, 0, OutputFormat::kJson), "{\"sample\":0,\"value\":-1.5}\n");
  EXPECT_FALSE(to_json(v, 0, 0).contains("target"));
  EXPECT_EQ(text_of(v, 0, OutputFormat::kParquet).size(), form_of(v).row_bytes());
}

TEST(Predictions, NumbersOfALayerReadBackExactly) {
  const float third = 1.0F / 3;
  Predictions p;
  p.count = 2;
  p.numbers = {third, 2, 3, 4};
  p.width = 2;
  p.features = true;
  const auto text = text_of(p, 0, OutputFormat::kCsv);
  EXPECT_EQ(text, "sample,feature_0,feature_1\n0,0.33333334,2\n1,3,4\n");
  EXPECT_EQ(std::stof("0.33333334"), third);
  const auto row = nlohmann::json::parse("{\"sample\":1,\"features\":[3,4]}");
  EXPECT_EQ(to_json(p, 1, 1), row);
}

TEST(Predictions, WhatIsNotFiniteIsNullInJson) {
  Predictions p;
  p.count = 1;
  p.numbers = {std::numeric_limits<float>::infinity(), -1};
  p.width = 2;
  EXPECT_EQ(text_of(p, 0, OutputFormat::kJson), "{\"sample\":0,\"output\":[null,-1]}\n");
  EXPECT_EQ(text_of(p, 0, OutputFormat::kCsv), "sample,output_0,output_1\n0,inf,-1\n");
}

template <typename T>
T value_at(const std::string& bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

TEST(Predictions, RowsOfClasses) {
  Predictions p;
  p.count = 2;
  p.classes = {7, 0};
  p.probabilities = {0.1F, 1.0F};
  p.labels = {7, 3};
  const auto form = form_of(p);
  ASSERT_EQ(form.columns.size(), 4U);
  EXPECT_EQ(form.columns[2].name, "probability");
  const auto rows = text_of(p, 40, OutputFormat::kParquet);
  ASSERT_EQ(form.row_bytes(), 28U);
  ASSERT_EQ(rows.size(), 2 * form.row_bytes());
  EXPECT_EQ(value_at<int64_t>(rows, 28), 41);
  EXPECT_EQ(value_at<int64_t>(rows, 8), 7);
  EXPECT_EQ(value_at<float>(rows, 16), 0.1F);
  EXPECT_EQ(value_at<int64_t>(rows, 28 + 20), 3);
}

TEST(Predictions, RowsOfNumbers) {
  Predictions p;
  p.count = 2;
  p.numbers = {1, 2, 3, std::numeric_limits<float>::quiet_NaN(), 5, 6};
  p.width = 3;
  EXPECT_EQ(form_of(p).columns[1].name, "output");
  p.features = true;
  const auto form = form_of(p);
  EXPECT_EQ(form.columns[1].name, "features");
  EXPECT_EQ(form.columns[1].width, 3U);
  const auto rows = text_of(p, 0, OutputFormat::kParquet);
  ASSERT_EQ(rows.size(), 2 * form.row_bytes());
  EXPECT_EQ(value_at<float>(rows, 16), 3);
  EXPECT_TRUE(std::isnan(value_at<float>(rows, 28)));
  EXPECT_EQ(value_at<float>(rows, 32), 5);
  EXPECT_EQ(value_at<float>(rows, 36), 6);

  Predictions values;
  values.count = 1;
  values.values = {-1.5F};
  values.targets = {2};
  EXPECT_EQ(text_of(values, 0, OutputFormat::kParquet).size(), form_of(values).row_bytes());
  EXPECT_EQ(form_of(values).columns[2].name, "target");
}

TEST(Predictions, NamesOfFormats) {
  for (const auto format : {OutputFormat::kCsv, OutputFormat::kJson, OutputFormat::kParquet}) {
    EXPECT_EQ(find_output_format(output_format_name(format)), format);
  }
  EXPECT_FALSE(find_output_format("feather").has_value());
}

}  // namespace
}  // namespace muster::train
