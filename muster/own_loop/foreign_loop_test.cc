#include "muster/own_loop/foreign_loop.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "muster/track/run_events.h"
#include "muster/track/start_script.h"
#include "muster/track/temp_directory_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

const char* const kJob = R"({
  "muster": 1, "name": "test", "model": {"use": "own-loop"},
  "data": {"train": {"format": "own-loop"}}, "batch": 20, "lanes": 4, "steps": 10,
  "optimizer": {"kind": "sgd", "lr": 0.1}, "checkpoint": {"every": "5 steps"}})";

// y = w x + b for 100 samples, and two statistics: the mean of x, and of -x, which is the
// root module's own. All of it by hand: this is the program that has no libtorch.
class ForeignLoopTest : public testing::Test {
 protected:
  ForeignLoopTest() : run_(directory_.path() + "/run") {
    for (size_t i = 0; i < x_.size(); ++i) {
      x_[i] = static_cast<float>(i) / 50 - 1;
      y_[i] = 3 * x_[i] + 0.5F;
    }
    prepare_foreign_loop(/*seed=*/1, /*threads_per_lane=*/1);
  }

  std::unique_ptr<ForeignLoop> open(const std::vector<std::string>& sets = {}) {
    make_own_run(kJob, "test.py", sets, run_, {});
    const ForeignModel model = {
        .parameters = {{.name = "layer.w", .shape = {1}, .initial = &zero_},
                       {.name = "layer.b", .shape = {1}, .initial = &zero_},
                       {.name = "fixed", .shape = {1}, .initial = &seven_, .trains = false}},
        .statistics = {{.name = "norm.mean", .shape = {1}, .initial = &zero_, .momentum = 0.5},
                       {.name = "mean", .shape = {1}, .initial = &zero_, .momentum = 0.5}}};
    const ForeignData data = {
        .samples = x_.size(),
        .identity = "test",
        .contents = {std::as_bytes(std::span(x_)), std::as_bytes(std::span(y_))}};
    return std::make_unique<ForeignLoop>(
        std::vector<std::string>{"program", "train", "--run", run_, "--display", "none"}, model,
        data);
  }

  void compute(ForeignLoop& loop, const ForeignLoop::Lane& lane) {
    const float w = *loop.parameter(0);
    const float b = *loop.parameter(1);
    float dw = 0;
    float db = 0;
    float mean = 0;
    double loss = 0;
    for (const int64_t i : lane.samples) {
      const float x = x_[static_cast<size_t>(i)];
      const float error = w * x + b - y_[static_cast<size_t>(i)];
      const auto count = static_cast<float>(lane.samples.size());
      loss += error * error / count;
      dw += lane.weight * 2 * error * x / count;
      db += lane.weight * 2 * error / count;
      mean += x / count;
    }
    *loop.latest(0) = mean;
    *loop.latest(1) = -mean;
    loop.begin_backward();
    loop.gradient(1, &db);
    loop.gradient(0, &dw);
    loop.end_backward(loss);
  }

  void train(ForeignLoop& loop) {
    while (loop.step()) {
      while (const auto lane = loop.next_lane()) compute(loop, *lane);
      loop.commit();
    }
    loop.leave();
  }

  nlohmann::json result() const {
    std::ifstream file(run_ + "/result.json");
    return file ? nlohmann::json::parse(file) : nlohmann::json::object();
  }

  track::TempDirectory directory_;
  std::string run_;
  float zero_ = 0;
  float seven_ = 7;
  std::vector<float> x_ = std::vector<float>(100);
  std::vector<float> y_ = std::vector<float>(100);
};

TEST_F(ForeignLoopTest, TrainsAndLeavesTheValues) {
  const auto loop = open();
  train(*loop);
  EXPECT_TRUE(loop->finished());
  EXPECT_EQ(loop->exit_code(), 0);
  EXPECT_EQ(loop->steps(), 10);
  EXPECT_EQ(result().value("steps", 0), 10);
  EXPECT_GT(*loop->parameter(0), 0.5F);
  EXPECT_GT(*loop->parameter(1), 0.1F);
  EXPECT_EQ(*loop->parameter(2), 7);
}

// Half the mean of a batch in each step, from 0: what the formula gives, in whichever order lanes
// were computed.
TEST_F(ForeignLoopTest, StatisticsAreThoseOfAllLanes) {
  const auto loop = open();
  float expected = 0;
  while (loop->step()) {
    const int64_t step = loop->steps();
    float mean = 0;
    while (const auto lane = loop->next_lane()) {
      compute(*loop, *lane);
      mean += *loop->latest(0) * lane->weight;
    }
    if (loop->commit() && loop->steps() == step + 1) expected = 0.5F * expected + 0.5F * mean;
    if (loop->finished()) break;
    EXPECT_NEAR(*loop->running(0), expected, 1e-5);
    EXPECT_NEAR(*loop->running(1), -expected, 1e-5);
  }
  loop->leave();
}

// Batch normalization cannot train on one sample: better said before hours of training than in the
// last step.
TEST_F(ForeignLoopTest, TheSmallestLaneIsTriedFirst) {
  for (const int64_t steps : {4, 3}) {  // 100 samples: the last one of four has a single sample
    const auto loop = open({"batch=33", "passes=1", fmt::format("steps={}", steps)});
    std::vector<size_t> tried;
    while (loop->step()) {
      const int64_t before = loop->steps();
      const size_t tried_before = tried.size();
      while (const auto lane = loop->next_lane()) {
        if (!lane->trial.empty()) {
          EXPECT_EQ(before, 0);
          EXPECT_THAT(lane->trial, HasSubstr("only 1 of the batch's 33 samples"));
          EXPECT_THAT(lane->trial, HasSubstr("steps: 3"));
          tried.push_back(lane->samples.size());
        }
        compute(*loop, *lane);
      }
      if (!loop->commit()) continue;
      EXPECT_EQ(tried.size(), tried_before) << "what is tried is not committed";
    }
    loop->leave();
    EXPECT_EQ(loop->steps(), steps);
    EXPECT_EQ(tried, steps == 4 ? std::vector<size_t>{1} : std::vector<size_t>{});
    std::filesystem::remove_all(run_);
  }
}

TEST_F(ForeignLoopTest, TheSameJobGivesTheSameBits) {
  train(*open());
  const auto hash = result()["weights_hash"];
  std::filesystem::remove_all(run_);
  train(*open());
  EXPECT_EQ(result()["weights_hash"], hash);
  std::filesystem::remove_all(run_);
  y_[7] += 0.25F;
  train(*open());
  EXPECT_NE(result()["weights_hash"], hash);
}

// A program keeps views of the weights: `best = model.state_dict()`.
TEST_F(ForeignLoopTest, WhatIsOwnedStaysWhenTheWorkerHasEnded) {
  auto loop = open();
  ASSERT_TRUE(loop->step());
  const std::span<const float> kept[] = {{loop->parameter(0), 1}, {loop->running(0), 1}};
  const std::shared_ptr<const void> owners[] = {loop->owner_of(loop->parameter(0)),
                                                loop->owner_of(loop->running(0))};
  EXPECT_EQ(owners[0], owners[1]) << "both are in the state of the job";
  while (const auto lane = loop->next_lane()) compute(*loop, *lane);
  loop->commit();
  train(*loop);
  const float* const after = loop->parameter(0);
  EXPECT_NE(after, kept[0].data());
  const auto owner = loop->owner_of(after);
  const float expected[] = {*after, *loop->running(0)};
  loop.reset();
  const std::vector<float> other(1000, 5);
  EXPECT_EQ(kept[0][0], expected[0]);
  EXPECT_EQ(kept[1][0], expected[1]);
  EXPECT_EQ(*after, expected[0]);
}

TEST_F(ForeignLoopTest, LeavingEarlyIsAnError) {
  const auto loop = open();
  ASSERT_TRUE(loop->step());
  testing::internal::CaptureStderr();
  loop->leave();
  EXPECT_EQ(loop->exit_code(), 3);
  EXPECT_FALSE(loop->finished());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("left its loop"));
  EXPECT_EQ(*loop->parameter(2), 7) << "the values are still there";
}

TEST_F(ForeignLoopTest, MistakesAreThrown) {
  const auto loop = open();
  const float value = 1;
  EXPECT_THROW(loop->next_lane(), std::logic_error);
  ASSERT_TRUE(loop->step());
  EXPECT_THROW(loop->commit(), std::logic_error);
  EXPECT_THROW(loop->begin_backward(), std::logic_error);
  ASSERT_TRUE(loop->next_lane());
  EXPECT_THROW(loop->gradient(0, &value), std::logic_error);
  loop->begin_backward();
  EXPECT_THROW(loop->begin_backward(), std::logic_error);
  EXPECT_THROW(loop->gradient(2, &value), std::logic_error) << "it is not trained";
  EXPECT_THROW(loop->next_lane(), std::logic_error);
  loop->gradient(0, &value);
  EXPECT_THROW(loop->gradient(0, &value), std::logic_error) << "it would count twice";
  loop->abandon_backward();
  EXPECT_THROW(loop->begin_backward(), std::logic_error) << "once for each lane";
  testing::internal::CaptureStderr();
  loop->next_lane();
  loop->commit();
  EXPECT_FALSE(loop->step()) << "a lane without backward ends the job";
  loop->leave();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has not called backward"));
  EXPECT_EQ(loop->exit_code(), 3);
}

TEST_F(ForeignLoopTest, AJobThatIsWrongIsRefusedWithItsProgramsName) {
  try {
    make_own_run(R"({"muster": 1, "bach": 3})", "train.py", {}, run_, {});
    FAIL() << "it was accepted";
  } catch (const ForeignError& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_THAT(error.what(), HasSubstr("train.py"));
    EXPECT_THAT(error.what(), HasSubstr("bach"));
  }
  make_own_run(kJob, "train.py", {}, run_, {});
  EXPECT_EQ(track::find_start_script(run_), "");
  EXPECT_THROW(make_own_run(kJob, "train.py", {}, run_, {}), ForeignError) << "it is there already";
}

TEST_F(ForeignLoopTest, EventsOfARunWithoutALauncher) {
  make_own_run(kJob, "train.py", {}, run_, {});
  note_run_start(run_, R"({"event": "start", "host": "here", "workers": 1})");
  note_run_end(run_, 128 + 2);
  const auto files = posix_file_system();
  const auto events = track::read_run_events(*files, run_ + "/events.jsonl");
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2U);
  EXPECT_EQ(events->at(0).kind, "start");
  EXPECT_EQ(events->at(0).fields["host"], "here");
  EXPECT_EQ(events->at(1).kind, "end");
  EXPECT_EQ(events->at(1).fields["finished"], false);
  EXPECT_EQ(events->at(1).fields["stopped_by"], 2);
  note_run_start(directory_.path() + "/nowhere", "{}");  // no reason to end the program
}

TEST_F(ForeignLoopTest, ARunWithAProgramCanBeResumed) {
  make_own_run(kJob, "train.py", {}, run_, {"/usr/bin/python3", "train.py"});
  EXPECT_EQ(track::find_start_script(run_), run_ + "/program");
  try {
    make_own_run(kJob, "train.py", {}, run_, {});
    FAIL() << "it was accepted";
  } catch (const ForeignError& error) {
    EXPECT_THAT(error.what(), HasSubstr("go on with it: muster resume " + run_));
  }
}

}  // namespace
}  // namespace muster
