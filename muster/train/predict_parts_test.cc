#include "muster/train/predict_parts.h"

#include <cmath>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/data/blocks/column_plugin.h"
#include "muster/data/blocks/formats_testing.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSamples = 5000;

class PredictPartsTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Session> open(const std::vector<std::string>& sets = {}) {
    return open_session(R"(
model: { layers: [ linear: { out: 8 }, relu, linear: { out: 2 } ] }
data:
  train: { format: points }
  test: { format: points, args: { size: 5000 } }
batch: 20
lanes: 4
steps: 5
optimizer: { kind: sgd, lr: 0.1 }
eval: { batch: 96 }
)",
                        sets);
  }
  Status work(Session& session, const PartOptions& options = {}) {
    auto directory = parts::PartsDirectory::open(*files_, path_).value();
    return predict_parts(session, **session.test_data(), directory, options);
  }
  // All that was written; the directory is then gone.
  std::string take() {
    const auto directory = parts::PartsDirectory::open(*files_, path_).value();
    const auto plan = directory.plan().value();
    const auto joined = directory.join(*plan, scratch_.path() + "/out");
    EXPECT_TRUE(joined.ok()) << joined.error().message();
    EXPECT_TRUE(directory.remove().ok());
    return files_->read(scratch_.path() + "/out").value();
  }
  // The same of a Parquet file.
  std::string take_result() {
    const auto directory = parts::PartsDirectory::open(*files_, path_).value();
    const auto moved = directory.publish(scratch_.path() + "/out");
    EXPECT_TRUE(moved.ok()) << moved.error().message();
    EXPECT_TRUE(directory.remove().ok());
    return files_->read(scratch_.path() + "/out").value();
  }

  const ScratchDirectory scratch_ = ScratchDirectory::make("predict-parts").value();
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  const std::string path_ = scratch_.path() + "/out.parts";
};

TEST_F(PredictPartsTest, TheBytesDoNotDependOnWorkersAndThreads) {
  const auto alone = open({"threads=1"});
  ASSERT_TRUE(work(*alone).ok());
  const std::string expected = take();
  const auto lines = split(expected, '\n');
  ASSERT_EQ(lines.size(), kSamples + 2);
  EXPECT_EQ(lines[0], "sample,class,probability,label");
  for (uint64_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(lines[i + 1].substr(0, lines[i + 1].find(',')), std::to_string(i));
  }

  const auto first = open({"threads=2"});
  const auto second = open({"threads=1"});
  Status other;
  std::thread thread([&] { other = work(*second); });
  const auto status = work(*first);
  thread.join();
  ASSERT_TRUE(status.ok() && other.ok());
  EXPECT_EQ(take(), expected);
}

TEST_F(PredictPartsTest, FeaturesAreThoseOfAForwardPassByHand) {
  const auto session = open();
  PartOptions options{.what = {.raw = false, .layer = "0"}};
  ASSERT_TRUE(work(*session, options).ok());
  const auto lines = split(take(), '\n');
  EXPECT_EQ(lines[0],
            "sample,feature_0,feature_1,feature_2,feature_3,feature_4,feature_5,"
            "feature_6,feature_7");
  size_t w = 0;
  size_t b = 0;
  ASSERT_NE(session->arena().find("0.weight", &w), nullptr);
  ASSERT_NE(session->arena().find("0.bias", &b), nullptr);
  const auto weight = session->arena().tensor(w);
  const auto bias = session->arena().tensor(b);
  const auto& data = **session->test_data();
  for (uint64_t sample = 0; sample < kSamples; sample += 613) {
    float x[4];
    int64_t label = 0;
    data.read(sample, reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(&label));
    const auto cells = split(lines[sample + 1], ',');
    ASSERT_EQ(cells.size(), 9U);
    for (size_t i = 0; i < 8; ++i) {
      double sum = bias[i];
      for (size_t j = 0; j < 4; ++j) sum += double{weight[4 * i + j]} * x[j];
      EXPECT_NEAR(std::stod(cells[i + 1]), sum, 1e-5);
    }
  }
}

TEST_F(PredictPartsTest, WhatTheLinesDependOnIsPartOfThePlan) {
  const auto session = open();
  ASSERT_TRUE(work(*session).ok());
  PartOptions json;
  json.output = OutputFormat::kJson;
  EXPECT_THAT(work(*session, json).error().message(), HasSubstr("output was 'csv', and is now"));
  PartOptions unlabelled;
  unlabelled.what.labels = false;
  EXPECT_THAT(work(*session, unlabelled).error().message(), HasSubstr("labels was true"));
  EXPECT_THAT(work(*open({"eval.batch=50"})).error().message(), HasSubstr("eval.batch was 96"));
  EXPECT_THAT(work(*open({"seed=9"})).error().message(), HasSubstr("weights was"));
  EXPECT_THAT(work(*open({"data.test.args={size: 4000}"})).error().message(),
              HasSubstr("data was"));
}

// With NaN among the features: the numbers of sample 17 are none.
TEST_F(PredictPartsTest, AParquetFileHasTheNumbersOfACsvFile) {
  if (const auto there = check_output(OutputFormat::kParquet); !there.ok()) {
    GTEST_SKIP() << there.error().message();
  }
  const std::vector<std::string> poisoned = {"data.test.args={size: 5000, poison: 17}"};
  const PredictOptions features{.raw = false, .layer = "0"};
  const auto session = open(poisoned);
  ASSERT_TRUE(work(*session, {.what = features}).ok());
  const auto lines = split(take(), '\n');
  ASSERT_TRUE(work(*session, {.what = features, .output = OutputFormat::kParquet}).ok());
  const std::string table = take_result();

  const auto* plugin = data::load_column_plugin("parquet").value();
  const auto files = plugin->parquet({"sample", "features"});
  const auto object = data::testing::object_of(table);
  const auto extents = files->cut(object);
  const auto notes = files->notes(object);
  ASSERT_TRUE(extents.ok() && notes.ok());
  ASSERT_EQ(extents->size(), 1U);
  const auto& extent = extents->front();
  ASSERT_EQ(extent.count, kSamples);
  const std::string block = notes->front() + table.substr(extent.offset, extent.length);
  const auto columns = files->read(std::as_bytes(std::span(block)), extent.count, "");
  ASSERT_TRUE(columns.ok()) << columns.error().message();
  const auto& numbers = columns->at(1).floats;
  ASSERT_EQ(numbers.size(), 8 * kSamples);
  size_t not_numbers = 0;
  for (size_t sample = 0; sample < kSamples; ++sample) {
    EXPECT_EQ(columns->at(0).numbers[sample], static_cast<double>(sample));
    const auto cells = split(lines[sample + 1], ',');
    ASSERT_EQ(cells.size(), 9U);
    for (size_t i = 0; i < 8; ++i) {
      const float expected = std::stof(cells[i + 1]);
      const float number = numbers[8 * sample + i];
      not_numbers += std::isnan(number) ? 1 : 0;
      EXPECT_TRUE(number == expected || (std::isnan(number) && std::isnan(expected)))
          << sample << ": " << number << " and " << cells[i + 1];
    }
  }
  EXPECT_EQ(not_numbers, 8U);
}

TEST_F(PredictPartsTest, TheBytesOfAParquetFileDoNotDependOnWorkersAndThreads) {
  if (const auto there = check_output(OutputFormat::kParquet); !there.ok()) {
    GTEST_SKIP() << there.error().message();
  }
  const PartOptions options{.what = {}, .output = OutputFormat::kParquet};
  const auto alone = open({"threads=1"});
  ASSERT_TRUE(work(*alone, options).ok());
  // All is done: nothing is computed or written again.
  ASSERT_TRUE(work(*alone, options).ok());
  const std::string expected = take_result();

  const auto first = open({"threads=2"});
  const auto second = open({"threads=1"});
  Status other;
  std::thread thread([&] { other = work(*second, options); });
  const auto status = work(*first, options);
  thread.join();
  ASSERT_TRUE(status.ok() && other.ok());
  EXPECT_TRUE(take_result() == expected);
}

TEST_F(PredictPartsTest, ALayerThatIsNotThereIsAnErrorBeforeAnythingIsWritten) {
  const auto session = open();
  PartOptions options{.what = {.raw = false, .layer = "4"}};
  EXPECT_THAT(work(*session, options).error().message(), HasSubstr("no layer '4'"));
  EXPECT_FALSE(files_->exists(path_ + "/plan.json"));
}

}  // namespace
}  // namespace muster::train
