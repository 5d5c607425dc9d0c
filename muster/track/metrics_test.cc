#include "muster/track/metrics.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/fault_injection_testing.h"

namespace muster::track {
namespace {

using nlohmann::json;

constexpr const char* kPath = "metrics.jsonl";

void write_steps(MetricsWriter& writer, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    ASSERT_TRUE(writer.write({{"step", step}, {"loss", 1.0 / static_cast<double>(step)}}).ok());
  }
}

TEST(Metrics, OneLineEachReadBackExactly) {
  FaultInjectionFileSystem fs;
  auto writer = MetricsWriter::open(fs, kPath);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->write({{"step", 10}, {"loss", 0.1}, {"note", "a\nb\xff"}}).ok());
  ASSERT_TRUE(writer->write({{"step", 20}, {"loss", NAN}}).ok());
  EXPECT_EQ(*fs.read(kPath),
            "{\"loss\":0.1,\"note\":\"a\\nb\ufffd\",\"step\":10}\n{\"loss\":null,\"step\":20}\n");
  const auto metrics = read_metrics(fs, kPath);
  ASSERT_EQ(metrics->records.size(), 2u);
  EXPECT_EQ(metrics->records[0]["loss"].get<double>(), 0.1);
  EXPECT_EQ(metrics->skipped, 0);
}

TEST(Metrics, NoFileIsNoRecords) {
  FaultInjectionFileSystem fs;
  EXPECT_TRUE(read_metrics(fs, kPath)->records.empty());
}

TEST(Metrics, AResumedRunsFileEqualsTheUndisturbedOnes) {
  FaultInjectionFileSystem undisturbed;
  {
    auto writer = MetricsWriter::open(undisturbed, kPath);
    write_steps(*writer, 1, 50);
  }
  FaultInjectionFileSystem fs;
  {
    auto writer = MetricsWriter::open(fs, kPath);
    write_steps(*writer, 1, 37);
  }
  fs.contents(kPath) += "{\"step\": 38, \"lo";  // killed in the middle of a line
  {
    auto writer = MetricsWriter::open(fs, kPath);
    ASSERT_TRUE(writer->truncate_after(30).ok());
    write_steps(*writer, 31, 50);
  }
  EXPECT_EQ(*fs.read(kPath), *undisturbed.read(kPath));
}

TEST(Metrics, GoingOnAfterATornLineDoesNotGlueTwoTogether) {
  FaultInjectionFileSystem fs;
  {
    auto file = fs.create(kPath);
    ASSERT_TRUE((*file)->append("{\"step\":1}\n{\"st").ok());
  }
  EXPECT_EQ(read_metrics(fs, kPath)->skipped, 1);
  auto writer = MetricsWriter::open(fs, kPath);
  write_steps(*writer, 2, 2);
  EXPECT_EQ(*fs.read(kPath), "{\"step\":1}\n{\"st\n{\"loss\":0.5,\"step\":2}\n");
  EXPECT_EQ(read_metrics(fs, kPath)->records.size(), 2U);
}

TEST(Metrics, WhatALateWorkerRepeatsIsReadOnce) {
  FaultInjectionFileSystem fs;
  auto late = MetricsWriter::open(fs, kPath);
  auto writer = MetricsWriter::open(fs, kPath);
  write_steps(*writer, 1, 5);
  ASSERT_TRUE(writer->write({{"step", 5}, {"test", 1}}).ok());
  write_steps(*writer, 6, 9);
  write_steps(*late, 5, 5);
  ASSERT_TRUE(late->write({{"step", 5}, {"test", 1}}).ok());
  write_steps(*writer, 10, 10);
  const auto metrics = read_metrics(fs, kPath);
  ASSERT_EQ(metrics->records.size(), 11U);
  EXPECT_EQ(metrics->records[5], nlohmann::json({{"step", 5}, {"test", 1}}));
  EXPECT_EQ(metrics->records.back()["step"], 10);
}

TEST(Metrics, WholeLinesOfTheEndOnly) {
  FaultInjectionFileSystem fs;
  auto writer = MetricsWriter::open(fs, kPath);
  EXPECT_TRUE(read_metrics(fs, kPath, 3)->records.empty());
  for (int step = 1; step <= 5; ++step) ASSERT_TRUE(writer->write({{"step", step}}).ok());
  const size_t line = fs.read(kPath)->size() / 5;
  for (const size_t most : {3 * line + 1, 4 * line - 1, 4 * line}) {
    const auto metrics = read_metrics(fs, kPath, most);
    ASSERT_EQ(metrics->records.size(), 3U) << most;
    EXPECT_EQ(metrics->records[0]["step"], 3);
    EXPECT_EQ(metrics->skipped, 0);
  }
  EXPECT_EQ(read_metrics(fs, kPath, 5 * line + 1)->records.size(), 5U);
  // Not even the end of one line.
  EXPECT_TRUE(read_metrics(fs, kPath, line - 1)->records.empty());
  EXPECT_EQ(read_metrics(fs, kPath, line - 1)->skipped, 0);
}

TEST(Metrics, GarbageIsSkippedByTheReader) {
  FaultInjectionFileSystem fs;
  {
    auto file = fs.create(kPath);
    ASSERT_TRUE(
        (*file)->append("\n[1]\n{\"loss\":1}\n{\"step\":\"x\"}\n{\"step\":4}\n\xff\n").ok());
  }
  const auto metrics = read_metrics(fs, kPath);
  ASSERT_EQ(metrics->records.size(), 1u);
  EXPECT_EQ(metrics->skipped, 5);
}

TEST(Metrics, TruncatingTakesAwayTheEndOnly) {
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n{\"a\":1,\"step\":2}\n";
  const std::vector<std::string> ends = {"", "\n", "{\"step\":3}\n{\"step\":4}\n",
                                         "[1]\n{\"step\":3}\n"};
  for (const auto& end : ends) {
    FaultInjectionFileSystem fs;
    {
      auto file = fs.create(kPath);
      ASSERT_TRUE((*file)->append(lines + end).ok());
    }
    auto writer = MetricsWriter::open(fs, kPath);
    ASSERT_TRUE(writer->truncate_after(2).ok());
    EXPECT_EQ(*fs.read(kPath), lines) << end;
    ASSERT_TRUE(writer->truncate_after(0).ok());
    EXPECT_EQ(*fs.read(kPath), "");
  }
}

TEST(Metrics, ACrashWhileTruncatingLeavesTheOldOrTheNew) {
  for (int64_t n = 0; n < 8; ++n) {
    for (const auto loss : {CrashLoss::kNothing, CrashLoss::kUnsynced, CrashLoss::kSome}) {
      FaultInjectionFileSystem fs;
      auto writer = MetricsWriter::open(fs, kPath);
      write_steps(*writer, 1, 10);
      ASSERT_TRUE(writer->sync().ok());
      ASSERT_TRUE(fs.sync_directory("").ok());
      fs.restart(CrashLoss::kNothing);
      fs.fail_at(n, Fault::kCrash);
      (void)writer->truncate_after(5);
      fs.restart(loss, static_cast<uint64_t>(n));
      const auto metrics = read_metrics(fs, kPath);
      ASSERT_TRUE(metrics.ok());
      EXPECT_EQ(metrics->skipped, 0);
      EXPECT_THAT(metrics->records.size(), testing::AnyOf(5u, 10u)) << "crash at operation " << n;
    }
  }
}

TEST(Metrics, AFullDiskIsAnError) {
  FaultInjectionFileSystem fs;
  auto writer = MetricsWriter::open(fs, kPath);
  fs.fail_at(fs.operations(), Fault::kDiskFull);
  const Status written = writer->write({{"step", 1}});
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message(), testing::HasSubstr(kPath));
}

// The steps behind a rollback come once more; what was written of them before was wrong.
TEST(Metrics, RecordsBehindARollbackReplaceEarlierOnes) {
  FaultInjectionFileSystem fs;
  auto writer = MetricsWriter::open(fs, "metrics.jsonl");
  ASSERT_TRUE(writer.ok());
  const auto write = [&](int64_t step, double loss, uint64_t rollback) {
    nlohmann::json record = {{"step", step}, {"loss", loss}};
    set_rollback(record, rollback);
    ASSERT_TRUE(writer->write(record).ok());
  };
  for (const int64_t step : {10, 20, 30, 40}) write(step, 1, 0);
  write(20, 2, 7);
  write(30, 1, 0);  // by a worker that has not heard of it
  write(30, 2, 7);
  write(30, 3, 9);
  write(30, 2, 7);
  const auto metrics = read_metrics(fs, "metrics.jsonl");
  ASSERT_TRUE(metrics.ok());
  std::vector<std::pair<int64_t, double>> seen;
  for (const auto& record : metrics->records) {
    seen.emplace_back(record["step"].get<int64_t>(), record["loss"].get<double>());
  }
  EXPECT_THAT(
      seen, testing::ElementsAre(testing::Pair(10, 1), testing::Pair(20, 2), testing::Pair(30, 3)));
}

std::string lines(std::initializer_list<const char*> records) {
  std::string text;
  for (const char* const record : records) text.append(record).append("\n");
  return text;
}

// Another worker recorded up to step 3, and its host is lost.
TEST(Metrics, AHistoryIsContinuedByWhatItDoesNotHave) {
  const auto before = lines({R"({"step":1})", R"({"step":2})", R"({"step":2,"test":{}})"});
  const auto more =
      lines({R"({"step":1})", R"({"step":2})", R"({"step":2,"test":{}})", R"({"step":3})",
             R"({"step":3,"test":{}})", R"({"step":4})", R"({"step":4})"});
  EXPECT_EQ(continue_metrics(before, more, 3),
            before + lines({R"({"step":3})", R"({"step":3,"test":{}})", R"({"step":4})"}));
  EXPECT_EQ(continue_metrics("", more, 3),
            before + lines({R"({"step":3})", R"({"step":3,"test":{}})", R"({"step":4})"}));
  // Of the newest step it has one record of two.
  const auto half = lines({R"({"step":1})", R"({"step":2})"});
  EXPECT_EQ(continue_metrics(half, lines({R"({"step":2})", R"({"step":2,"test":{}})"}), 2), before);
  // A torn line, and lines of steps that are computed again, perhaps with another schedule.
  EXPECT_EQ(continue_metrics(before + lines({R"({"step":3,"lr":1})"}) + "{\"st",
                             lines({R"({"step":3,"lr":2})"}), 2),
            before + lines({R"({"step":3,"lr":2})"}));
}

TEST(Metrics, AHistoryIsContinuedBehindARollback) {
  const auto before = lines({R"({"step":1})", R"({"step":2})", R"({"step":3})"});
  const auto more = lines({R"({"step":2})", R"({"step":3})", R"({"rollback":7,"step":2})",
                           R"({"rollback":7,"step":3})"});
  EXPECT_EQ(continue_metrics(before, more, 3, 7, 1),
            before + lines({R"({"rollback":7,"step":2})", R"({"rollback":7,"step":3})"}));
}

TEST(Metrics, OfALongHistoryOnlyTheEndIsLookedAt) {
  std::string before;
  for (int64_t step = 1; step <= 20000; ++step) before += fmt::format("{{\"step\":{}}}\n", step);
  EXPECT_EQ(continue_metrics(before, before, 20000), before);
  EXPECT_EQ(continue_metrics(before, before + "{\"step\":20001}\n", 20000),
            before + "{\"step\":20001}\n");
}

}  // namespace
}  // namespace muster::track
