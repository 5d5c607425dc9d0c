// Runs of several workers in one run directory: a real coordinator, real groups over loopback, a
// thread for each worker. Whatever happens, the directory ends up as if one worker had trained
// alone. (Processes that are killed are in tests/e2e.)
#include <signal.h>

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/forwarding_file_system_testing.h"
#include "muster/ckpt/snapshot_testing.h"
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
          copy::CopyOptions{.to = to_,
                            .run_directory = run.path(),
                            .keep = 2,
                            .keep_best = true,
                            .own_directory = open_reader_ != nullptr},
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

// Each worker has a run directory of its own, as on hosts that share none.
class OwnDirectoriesTest : public TrainerCopyTest {
 protected:
  void SetUp() override {
    send_through([]() -> Status { return {}; });
    open_reader_ = [this](const track::RunDirectory& run) {
      return std::make_unique<copy::CopyReader>(
          std::make_unique<store::RetryStore>(std::make_unique<store::LocalStore>(), clock_,
                                              store::quick_retries()),
          *files_,
          copy::CopyOptions{.to = to_,
                            .run_directory = run.path(),
                            .keep = 2,
                            .keep_best = true,
                            .own_directory = true},
          std::function<void()>());
    };
  }
  // As track::make_ready leaves it.
  void make_host(const std::string& name) {
    const auto run = open_run(name);
    const copy::RunId id{.run = "points-1", .writer = ""};
    ASSERT_TRUE(copy::write_run_id(*files_, run.path(), id).ok());
  }
  Life work(const std::string& host, const Told& told = {}) {
    return live(host, host, told, {"checkpoint.to=" + to_});
  }
  // The same by several at once.
  std::vector<Life> work_together(const std::vector<std::string>& hosts) {
    start(static_cast<int>(hosts.size()));
    std::vector<Life> lives(hosts.size());
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < hosts.size(); ++i) {
      threads.emplace_back([&, i] { lives[i] = work(hosts[i]); });
    }
    threads.clear();
    return lives;
  }
  static void wait_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 30000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(condition());
  }
  // The newest step of the copy; -1: there is none yet.
  int64_t copied_so_far() {
    store::LocalStore store;
    const auto stored = copy::read_index(store, to_);
    if (!stored.ok() || !*stored || (*stored)->index.newest() == nullptr) return -1;
    return (*stored)->index.newest()->step;
  }
  // One of these hosts has recorded the end, as if one worker had trained alone.
  void expect_whole(const std::vector<std::string>& hosts, const std::vector<Life>& lives) {
    // Not for the worker alone.
    open_copy_ = {};
    at_step_ = {};
    int ended = 0;
    for (size_t i = 0; i < hosts.size(); ++i) {
      ASSERT_TRUE(lives[i].summary) << lives[i].error;
      if (open_run(hosts[i]).read_status().state != track::RunState::kFinished) continue;
      ++ended;
      expect_as_alone(hosts[i], lives[i]);
    }
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(copied_so_far(), 60);
    store::LocalStore store;
    const auto stored = copy::read_index(store, to_);
    ASSERT_TRUE(stored.ok() && *stored);
    EXPECT_NE((*stored)->index.find("result.json"), nullptr);
  }
};

// The last steps before it took over are not in the copy yet: the next one knows them itself.
TEST_F(OwnDirectoriesTest, WhoTakesOverContinuesTheHistory) {
  for (const char* const host : {"paris", "tokyo"}) make_host(host);
  start(1);
  at_step_ = [this](int64_t step) {
    if (step == 5) wait_until([this] { return coordinator_->status().roster.members.size() == 2; });
    if (step == 25) wait_until([this] { return copied_so_far() >= 14; });
    if (step > 30) std::this_thread::sleep_for(3ms);  // so that the first one leaves before the end
  };
  Life left;
  std::jthread first([&] { left = work("paris", {30, SIGTERM}); });
  wait_until([this] { return newest_ >= 3; });
  const auto second = work("tokyo");
  first.join();
  ASSERT_TRUE(left.summary) << left.error;
  EXPECT_EQ(left.summary->reason, EndReason::kLeft);
  expect_whole({"tokyo"}, {second});
  EXPECT_FALSE(open_run("paris").read_result().has_value());
}

TEST_F(OwnDirectoriesTest, HostsWithoutFilesBeginFromTheCopy) {
  for (const char* const host : {"paris", "tokyo", "lima"}) make_host(host);
  start(1);
  const auto stopped = work("paris", {25, SIGINT});
  ASSERT_TRUE(stopped.summary) << stopped.error;
  EXPECT_EQ(stopped.summary->reason, EndReason::kSignal);
  EXPECT_GE(copied_so_far(), 25);
  const auto lives = work_together({"tokyo", "lima"});
  expect_whole({"tokyo", "lima"}, lives);
}

// The host that recorded last has a checkpoint that did not reach the copy.
TEST_F(OwnDirectoriesTest, TheNewestCheckpointOfAnyDiskIsTaken) {
  for (const char* const host : {"paris", "tokyo"}) make_host(host);
  start(1);
  const auto stopped = work("paris", {25, SIGINT});
  ASSERT_TRUE(stopped.summary) << stopped.error;
  const int64_t step = stopped.summary->counters.step;
  // As if it had been cut off before the last checkpoint was sent.
  store::LocalStore store;
  auto stored = copy::read_index(store, to_);
  ASSERT_TRUE(stored.ok() && *stored);
  auto index = (*stored)->index;
  ASSERT_EQ(index.newest()->step, step);
  index.checkpoints.pop_back();
  ASSERT_FALSE(index.checkpoints.empty());
  const auto text = index.encode();
  ASSERT_TRUE(store
                  .write(to_ + "/latest.json", std::as_bytes(std::span(text)),
                         store::WriteCondition::always())
                  .ok());
  std::atomic<int64_t> least{1000};
  at_step_ = [&](int64_t at) {
    if (at > 0 && at < least) least = at;
  };
  const auto lives = work_together({"paris", "tokyo"});
  expect_whole({"paris", "tokyo"}, lives);
  EXPECT_GE(least.load(), step);
}

// A host that returns has a checkpoint of a past that was left.
TEST_F(OwnDirectoriesTest, ACheckpointOfAStaleDirectoryDoesNotCount) {
  for (const char* const host : {"paris", "tokyo"}) make_host(host);
  start(1);
  ASSERT_TRUE(work("paris", {20, SIGINT}).summary);
  start(1);
  const auto next = work("tokyo", {40, SIGINT});
  ASSERT_TRUE(next.summary) << next.error;
  EXPECT_GE(copied_so_far(), 40);
  // It is of another model, so that it would be an error to load it.
  ckpt::SnapshotStore stale(*files_, open_run("paris").checkpoints(), 2, true);
  const ckpt::TestState state(59);
  auto view = state.view();
  view.roster = 1;
  for (const auto& there : *stale.list()) ASSERT_TRUE(files_->remove_all(there.path).ok());
  ASSERT_TRUE(stale.write(view).ok());
  const auto lives = work_together({"paris", "tokyo"});
  expect_whole({"paris", "tokyo"}, lives);
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
