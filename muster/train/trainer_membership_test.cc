// Runs of several workers in one run directory: a real coordinator, real groups over loopback, a
// thread for each worker. Whatever happens, the directory ends up as if one worker had trained
// alone. (Processes that are killed are in tests/e2e.)
#include <signal.h>

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/forwarding_file_system_testing.h"
#include "muster/copy/copy_index.h"
#include "muster/store/local_store.h"
#include "muster/store/retry.h"
#include "muster/store/store_testing.h"
#include "muster/train/ledger.h"
#include "muster/train/trainer_testing.h"

namespace muster::train {
namespace {

const char* const kJob = R"(
name: points
model: { layers: [ linear: { out: 16 }, batchnorm, relu, linear: { out: 2 } ] }
data:
  train: { format: points, args: { size: 90 } }
  test: { format: points, args: { size: 50 } }
batch: 20
lanes: 5
steps: 60
optimizer: { kind: adam, lr: 0.01 }
eval: { every: 10 steps }
checkpoint: { every: 7 steps, keep: 2 }
track: { every: 1 steps }
threads: 1
)";

class TrainerMembershipTest : public TrainerTest {
 protected:
  TrainerMembershipTest() : TrainerTest(kJob, 5) {}
};

// A disk that takes its time for everything it is given.
class SlowFile final : public WritableFile {
 public:
  SlowFile(std::unique_ptr<WritableFile> file, Duration pause)
      : file_(std::move(file)), pause_(pause) {}
  Status append(std::span<const std::byte> data) override {
    std::this_thread::sleep_for(pause_);
    return file_->append(data);
  }
  Status sync() override { return file_->sync(); }
  Status close() override { return file_->close(); }

 private:
  std::unique_ptr<WritableFile> file_;
  const Duration pause_;
};

class SlowFileSystem final : public ForwardingFileSystem {
 public:
  SlowFileSystem(FileSystem& disk, Duration pause) : ForwardingFileSystem(disk), pause_(pause) {}
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    MUSTER_TRY(auto file, ForwardingFileSystem::create(path));
    return std::unique_ptr<WritableFile>(std::make_unique<SlowFile>(std::move(file), pause_));
  }

 private:
  const Duration pause_;
};

TEST_F(TrainerMembershipTest, SeveralLeaveWhatOneLeaves) {
  const auto lives = together("run", {{}, {}, {}});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kDone);
  }
  expect_as_alone("run", lives[2]);
  EXPECT_TRUE(open_run("run").read_result().has_value());
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kFinished);
}

// At the end all wait for the last checkpoint. Its writer is not taken for one that hangs, however
// long it takes, as long as it writes a part within every hang_timeout.
TEST_F(TrainerMembershipTest, ASlowDiskIsNotAHang) {
  const auto disk = std::exchange(files_, nullptr);
  // Some 25 tensors and small files of 200 ms each: several times the timeout. The heartbeats that
  // tell of them are 400 ms apart.
  files_ = std::make_unique<SlowFileSystem>(*disk, 200ms);
  hang_timeout_ = 700ms;
  rebalance_every_ = 1h;
  const auto lives = together("run", {{}, {}}, {"steps=3", "checkpoint.every=0", "eval.every=0"});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kDone);
  }
  // Whatever the coordinator takes for a hang, it answers with another roster.
  const auto status = coordinator_->status();
  std::vector<std::string> events;
  for (const auto& event : status.events) events.push_back(event.text);
  EXPECT_EQ(roster::sequence_of(status.roster.number), 1U)
      << fmt::format("{}", fmt::join(events, "\n"));
  files_ = posix_file_system();
}

// A directory for copies that `answers` first when it is to take a file of the last checkpoint.
class ReluctantStore final : public store::ForwardingStore {
 public:
  explicit ReluctantStore(std::function<Status()> answers)
      : ForwardingStore(local_), answers_(std::move(answers)) {}
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const store::WriteCondition& condition) override {
    if (address.find(ckpt::snapshot_directory_name(60)) != std::string_view::npos) {
      MUSTER_RETURN_IF_ERROR(answers_());
    }
    return ForwardingStore::write(address, bytes, condition);
  }

 private:
  const std::function<Status()> answers_;
  store::LocalStore local_;
};

class TrainerCopyTest : public TrainerMembershipTest {
 protected:
  void send_through(const std::function<Status()>& answers) {
    open_copy_ = [this, answers](const track::RunDirectory& run) {
      return std::make_unique<copy::CopySender>(
          std::make_unique<store::RetryStore>(std::make_unique<ReluctantStore>(answers), clock_,
                                              store::quick_retries()),
          *files_,
          copy::CopyOptions{.to = to_, .run_directory = run.path(), .keep = 2, .keep_best = true},
          log_);
    };
  }
  // The newest step there; -1: none.
  int64_t copied() {
    store::LocalStore store;
    const auto stored = copy::read_index(store, to_);
    EXPECT_TRUE(stored.ok() && *stored);
    if (!stored.ok() || !*stored) return -1;
    const auto* const newest = (*stored)->index.newest();
    return newest == nullptr ? -1 : newest->step;
  }
  const std::string to_ = temp_.path() + "/copy";
};

// At the end all wait for the copy, longer than a collective may take.
TEST_F(TrainerCopyTest, AStoreThatIsAwayAtTheEndDoesNotCostTheGroup) {
  std::atomic<int64_t> first{0};
  send_through([&]() -> Status {
    const int64_t now = clock_.now().time_since_epoch().count();
    int64_t none = 0;
    first.compare_exchange_strong(none, now);
    if (Duration(now - first) >= 5s) return {};
    return Error(ErrorKind::kIo, "the server is away");
  });
  timeout_ = 3s;
  rebalance_every_ = 1h;
  const auto lives = together("run", {{}, {}});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kDone);
  }
  EXPECT_EQ(copied(), 60);
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kFinished);
  EXPECT_EQ(roster::sequence_of(coordinator_->status().roster.number), 1U);
}

// No other worker could do better: the job ends at once, and one worker says why.
TEST_F(TrainerCopyTest, ACopyThatIsRefusedAtTheEndEndsTheJob) {
  send_through([]() -> Status { return Error(ErrorKind::kData, "you may not write here"); });
  rebalance_every_ = 1h;
  const auto lives = together("run", {{}, {}});
  int failed = 0;
  for (const auto& life : lives) {
    if (life.summary) {
      EXPECT_EQ(life.summary->reason, EndReason::kDone);
      continue;
    }
    ++failed;
    EXPECT_THAT(life.error, testing::HasSubstr("training is complete and saved in"));
    EXPECT_THAT(life.error, testing::HasSubstr("you may not write here"));
    EXPECT_THAT(life.error, testing::HasSubstr("muster resume"));
  }
  EXPECT_EQ(failed, 1);
  EXPECT_LT(copied(), 60);
  EXPECT_NE(open_run("run").read_status().state, track::RunState::kFinished);
  const auto status = coordinator_->status();
  EXPECT_FALSE(status.ended.empty());
  EXPECT_EQ(roster::sequence_of(status.roster.number), 1U);
  // What is missing is sent later, by a worker alone too.
  send_through([]() -> Status { return {}; });
  const auto later = live("run", "");
  ASSERT_TRUE(later.summary) << later.error;
  EXPECT_EQ(copied(), 60);
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kFinished);
}

// Told to stop while the store is away: they do not wait for it.
TEST_F(TrainerCopyTest, AStopEndsTheWaitForTheCopy) {
  send_through([]() -> Status { return Error(ErrorKind::kIo, "the server is away"); });
  const auto lives = together("run", {{60, SIGINT}, {60, SIGINT}});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kSignal);
  }
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kInterrupted);
}

// Stopped while it took over, and continued when all was over.
TEST_F(TrainerMembershipTest, OneThatWakesUpAfterTheEndDoesNotSayThatTheJobRuns) {
  auto run = open_run("run");
  ASSERT_TRUE(run.write_status(track::RunState::kFinished, "", 60, clock_).ok());
  const auto session = open_session(kJob);
  NoSink sink;
  Recorder recorder(*session, {&run, files_.get(), &clock_, &log_, &sink});
  ASSERT_TRUE(recorder.begin(/*roster=*/7).ok());
  EXPECT_TRUE(recorder.on());
  EXPECT_EQ(run.read_status().state, track::RunState::kFinished);
}

TEST_F(TrainerMembershipTest, TheOneThatRecordsMayGoAndAnotherGoesOnRecording) {
  // Rank 0 is whoever was first; each in turn is told to go.
  for (size_t leaver = 0; leaver < 3; ++leaver) {
    std::vector<Told> tell(3);
    tell[leaver] = {23, SIGTERM};
    const auto run = fmt::format("run{}", leaver);
    const auto lives = together(run, tell);
    ASSERT_TRUE(lives[leaver].summary) << lives[leaver].error;
    EXPECT_EQ(lives[leaver].summary->reason, EndReason::kLeft);
    expect_as_alone(run, lives[(leaver + 1) % 3]);
  }
}

TEST_F(TrainerMembershipTest, OneIsToldToStopAndAllDoAfterTheSameStep) {
  const auto lives = together("run", {{}, {31, SIGINT}, {}});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kSignal);
    EXPECT_EQ(life.summary->signal, SIGINT);
    EXPECT_EQ(life.summary->counters.step, lives[0].summary->counters.step);
  }
  const auto step = lives[0].summary->counters.step;
  EXPECT_GE(step, 32);
  ckpt::SnapshotStore store(*files_, temp_.path() + "/run/checkpoints", 2, true);
  const auto newest = store.load_newest();
  ASSERT_TRUE(newest.ok() && newest->has_value());
  EXPECT_EQ((*newest)->step, step);
  EXPECT_EQ(open_run("run").read_status().state, track::RunState::kInterrupted);
  // And two others take it up again.
  const auto rest = together("run", {{}, {}});
  expect_as_alone("run", rest[1]);
}

TEST_F(TrainerMembershipTest, TheLastOneThatIsToldToGoSavesFirst) {
  const auto lives = together("run", {{12, SIGTERM}});
  ASSERT_TRUE(lives[0].summary) << lives[0].error;
  EXPECT_EQ(lives[0].summary->reason, EndReason::kSignal);
  expect_as_alone("run", live("run", ""));
}

TEST_F(TrainerMembershipTest, AJoinerTakesPart) {
  start(1);
  Life first, second;
  {
    const std::jthread one([&] { first = live("run", "0", {}, {"steps=400"}); });
    const std::jthread two([&] {
      while (newest_ < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      second = live("run", "1", {}, {"steps=400"});
    });
  }
  ASSERT_TRUE(first.summary && second.summary) << first.error << second.error;
  EXPECT_EQ(first.summary->weights_hash, second.summary->weights_hash);
  EXPECT_EQ(second.summary->reason, EndReason::kDone);
  const auto alone = live("alone", "", {}, {"steps=400"});
  EXPECT_EQ(first.summary->weights_hash, alone.summary->weights_hash);
  EXPECT_EQ(records("run"), records("alone"));
}

TEST_F(TrainerMembershipTest, TimeEndsAJobForAllAtOnce) {
  const std::vector<std::string> sets = {"steps=100000000", "time=200ms", "eval.every=0",
                                         "checkpoint.every=0"};
  const auto lives = together("run", {{}, {}}, sets);
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kTime);
    EXPECT_EQ(life.summary->counters.step, lives[0].summary->counters.step);
    EXPECT_EQ(life.summary->counters.evaluation.step, life.summary->counters.step);
  }
}

TEST_F(TrainerMembershipTest, TheLedgerIsWhatTheOrderSays) {
  const auto session = open_session(kJob);
  const auto lives = together("run", {{}, {23, SIGTERM}, {}});
  ASSERT_TRUE(lives[0].summary) << lives[0].error;
  EXPECT_EQ(lives[0].summary->counters.ledger,
            expected_ledger(session->batches(), session->job().seed, session->train_samples(), 60));
  EXPECT_NE(lives[0].summary->counters.ledger,
            expected_ledger(session->batches(), session->job().seed, session->train_samples(), 59));
}

}  // namespace
}  // namespace muster::train
