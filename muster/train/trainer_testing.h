// Runs of several workers in one run directory, for tests: a real coordinator, real groups over
// loopback, a thread for each worker.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/copy/copy_reader.h"
#include "muster/copy/copy_sender.h"
#include "muster/roster/coordinator.h"
#include "muster/track/temp_directory_testing.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/trainer.h"

namespace muster::train {

using namespace std::chrono_literals;

class NoSink final : public track::Sink {
 public:
  void write(std::string_view) override {}
  bool is_terminal() const override { return false; }
  bool has_colour() const override { return false; }
  int width() const override { return 80; }
};

// What a worker is told, and when.
struct Told {
  int64_t at_step = -1;
  int signal = 0;
};
struct Life {
  std::optional<TrainSummary> summary;
  std::string error;
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest(std::string job, int lanes) : job_(std::move(job)), lanes_(lanes) {}

  void start(int expected) {
    roster::CoordinatorOptions options;
    options.roster.job = "points";
    options.roster.lanes = lanes_;
    options.roster.expected = expected;
    options.roster.hang_timeout = hang_timeout_;
    options.roster.rebalance_every = rebalance_every_;
    options.roster.term = roster::term_from_clock(clock_);
    auto coordinator = roster::Coordinator::start(std::move(options), clock_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.error().message();
    coordinator_ = *std::move(coordinator);
  }

  track::RunDirectory open_run(const std::string& name) {
    const auto path = temp_.path() + "/" + name;
    std::filesystem::create_directories(path);
    if (!std::filesystem::exists(path + "/job.yaml")) {
      std::ofstream(path + "/job.yaml") << "muster: 1\n";
    }
    auto run = track::RunDirectory::open(*files_, path);
    EXPECT_TRUE(run.ok());
    return *std::move(run);
  }

  // From joining to the end. Without an id: alone.
  Life live(const std::string& directory, const std::string& id, const Told& told = {},
            const std::vector<std::string>& sets = {}) {
    Life life;
    auto run = open_run(directory);
    auto opened = Session::open(make_job(job_, sets), registries_);
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    const auto session = *std::move(opened);
    NoSink sink;
    std::unique_ptr<Membership> membership;
    std::unique_ptr<copy::CopyReader> reader;
    CopySource source;
    if (open_reader_ && !id.empty()) {
      reader = open_reader_(run);
      auto seen = reader->look();
      EXPECT_TRUE(seen.ok()) << seen.error().message();
      source.reader = reader.get();
      source.is_needed = true;
      if (seen.ok()) source.seen = *std::move(seen);
    }
    if (!id.empty()) {
      MembershipOptions options;
      options.coordinators = {coordinator_->address()};
      options.job = "points";
      options.id = id;
      if (timeout_) options.timeout = *timeout_;
      auto joined = Membership::join(*session, options, clock_, log_);
      EXPECT_TRUE(joined.ok()) << joined.error().message();
      membership = *std::move(joined);
    }
    std::unique_ptr<copy::CopySender> copy;
    if (open_copy_) copy = open_copy_(run);
    Recorder recorder(*session, {&run,
                                 files_.get(),
                                 &clock_,
                                 &log_,
                                 &sink,
                                 track::ProgressMode::kNormal,
                                 [&] {
                                   if (membership != nullptr) membership->progress();
                                 },
                                 copy.get(),
                                 {},
                                 reader != nullptr});
    // The trainer asks on this thread, which alone may look at the state, and on one that watches.
    const auto here = std::this_thread::get_id();
    std::atomic<int64_t> step{0};
    const auto signal = [&] {
      if (std::this_thread::get_id() == here) {
        step = session->arena().counters().step;
        if (at_step_) at_step_(step);
      }
      newest_ = std::max(newest_.load(), step.load());
      return told.at_step >= 0 && step >= told.at_step ? told.signal : 0;
    };
    TrainerEnvironment environment{files_.get(), &clock_, &log_, signal};
    environment.copy = std::move(source);
    Trainer trainer(*session, recorder, std::move(environment), membership.get());
    if (membership == nullptr) {
      EXPECT_TRUE(trainer.prepare().ok());
    }
    auto summary = trainer.train();
    if (summary.ok()) {
      life.summary = *std::move(summary);
    } else {
      life.error = summary.error().message();
    }
    return life;
  }

  // Those of a run, without times.
  std::vector<nlohmann::json> records(const std::string& directory) {
    auto metrics = track::read_metrics(*files_, temp_.path() + "/" + directory + "/metrics.jsonl");
    EXPECT_TRUE(metrics.ok());
    for (auto& record : metrics->records) track::erase_times(record);
    return metrics->records;
  }

  std::vector<Life> together(const std::string& directory, const std::vector<Told>& tell,
                             const std::vector<std::string>& sets = {}) {
    start(static_cast<int>(tell.size()));
    std::vector<Life> lives(tell.size());
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < tell.size(); ++i) {
      threads.emplace_back(
          [&, i] { lives[i] = live(directory, fmt::format("{}", i), tell[i], sets); });
    }
    threads.clear();
    return lives;
  }

  void expect_as_alone(const std::string& directory, const Life& life) {
    ASSERT_TRUE(life.summary) << life.error;
    const auto alone = live("alone", "");
    ASSERT_TRUE(alone.summary);
    EXPECT_EQ(life.summary->weights_hash, alone.summary->weights_hash);
    EXPECT_EQ(life.summary->counters.ledger, alone.summary->counters.ledger);
    EXPECT_EQ(life.summary->test, alone.summary->test);
    EXPECT_EQ(life.summary->counters.best.step, alone.summary->counters.best.step);
    EXPECT_EQ(records(directory), records("alone"));
  }

  const std::string job_;
  const int lanes_;
  Registries registries_ = testing_registries();
  const track::TempDirectory temp_;
  const SystemClock clock_;
  Log log_;
  std::unique_ptr<FileSystem> files_ = posix_file_system();
  std::unique_ptr<roster::Coordinator> coordinator_;
  std::atomic<int64_t> newest_{0};
  // Called by the thread of each worker, at least once in each step.
  std::function<void(int64_t step)> at_step_;
  // Makes what sends the copy of a run; empty: there is none.
  std::function<std::unique_ptr<copy::CopySender>(const track::RunDirectory& run)> open_copy_;
  // Makes what reads it, for workers whose hosts have run directories of their own; empty: all
  // share one.
  std::function<std::unique_ptr<copy::CopyReader>(const track::RunDirectory& run)> open_reader_;
  std::optional<Duration> timeout_;  // of a collective
  Duration hang_timeout_ = 60s;
  Duration rebalance_every_ = 5s;
};

}  // namespace muster::train
