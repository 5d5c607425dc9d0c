#include "muster/train/predictions.h"

#include <limits>

#include <gtest/gtest.h>

namespace muster::train {
namespace {

std::string text_of(const Predictions& predictions, uint64_t first, Lines lines) {
  std::string text = header_of(predictions, lines);
  append_lines(predictions, first, lines, text);
  return text;
}

TEST(Predictions, Classes) {
  Predictions p;
  p.count = 2;
  p.classes = {7, 0};
  p.probabilities = {0.1F, 1.0F};
  p.labels = {7, 3};
  EXPECT_EQ(text_of(p, 40, Lines::kCsv), "sample,class,probability,label\n40,7,0.1,7\n41,0,1,3\n");
  EXPECT_EQ(text_of(p, 40, Lines::kJson), R"({"sample":40,"class":7,"probability":0.1,"label":7})"
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
  EXPECT_EQ(text_of(p, 0, Lines::kCsv), "sample,value,target\n0,-1.5,1e-07\n");
  EXPECT_EQ(text_of(p, 0, Lines::kJson), "{\"sample\":0,\"value\":-1.5,\"target\":1e-07}\n");
}

TEST(Predictions, NumbersOfALayerReadBackExactly) {
  const float third = 1.0F / 3;
  Predictions p;
  p.count = 2;
  p.numbers = {third, 2, 3, 4};
  p.width = 2;
  p.features = true;
  const auto text = text_of(p, 0, Lines::kCsv);
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
  EXPECT_EQ(text_of(p, 0, Lines::kJson), "{\"sample\":0,\"output\":[null,-1]}\n");
  EXPECT_EQ(text_of(p, 0, Lines::kCsv), "sample,output_0,output_1\n0,inf,-1\n");
}

TEST(Predictions, NamesOfLines) {
  for (const Lines lines : {Lines::kCsv, Lines::kJson}) {
    EXPECT_EQ(find_lines(lines_name(lines)), lines);
  }
  EXPECT_FALSE(find_lines("parquet").has_value());
}

}  // namespace
}  // namespace muster::train
