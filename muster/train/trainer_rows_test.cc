// Workers of a job with tables, whose rows other workers have gone on with, and rounds of
// asynchronous training that do not end as planned.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ps/net/job_setup.h"
#include "muster/train/replay.h"
#include "muster/train/rows/shared_tables_testing.h"
#include "muster/train/trainer_testing.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;

const char* const kSync = R"(
name: points
model: { zoo: dlrm, loss: click }
data:
  train: { format: ctr, args: { samples: 4000, features: 5, ids: 300, numbers: 2 } }
  loader: { threads: 0 }  # so that nobody reads rows ahead
batch: 37
lanes: 4
steps: 30
optimizer: { kind: adam, lr: 0.01 }
tables: { width: 6, lr: 0.1, shards: 5 }
checkpoint: { every: 10 steps, keep: 10 }
threads: 1
)";

const char* const kAsync = R"(
name: points
model: { layers: [ linear: { out: 16 }, relu, linear: { out: 2 } ] }
data: { train: { format: points, args: { size: 200 } } }
batch: 40
lanes: 4
steps: 30
optimizer: { kind: sgd, lr: 0.1 }
sync: { strategy: server, period: 10 }
tables: { shards: 5 }
checkpoint: { every: 10 steps, keep: 10 }
threads: 1
)";

// What happens to the tables while a worker uses them.
struct Hooks {
  std::function<void(int64_t clock, std::vector<int64_t>& clocks)> read;
  std::function<void(int64_t from, LocalTables& tables, ps::OrderView& view)> order;
  std::function<void(const std::function<void()>& progress)> save;
};

class HookedTables final : public SharedTables {
 public:
  // `era`: that of the servers (ps/table_data.h).
  HookedTables(std::shared_ptr<LocalTables> tables, const Hooks& hooks, std::atomic<uint64_t>& era)
      : SharedTables(tables), tables_(std::move(tables)), hooks_(hooks), era_(era) {}
  Status read(uint32_t table, std::span<const uint64_t> keys, int64_t clock, float* rows,
              std::vector<int64_t>& clocks) override {
    MUSTER_RETURN_IF_ERROR(SharedTables::read(table, keys, clock, rows, clocks));
    if (hooks_.read) hooks_.read(clock, clocks);
    return {};
  }
  Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) override {
    MUSTER_TRY(auto view, SharedTables::order(worker, from, results));
    if (hooks_.order) hooks_.order(from, *tables_, view);
    return view;
  }
  void set_progress(const std::function<void()>& progress) override { progress_ = progress; }
  Result<std::vector<std::string>> save(uint64_t era, int64_t clock) override {
    if (hooks_.save) hooks_.save(progress_);
    MUSTER_RETURN_IF_ERROR(check(era));
    return SharedTables::save(era, clock);
  }
  Result<Hash128> hash(uint64_t era, int64_t clock) override {
    MUSTER_RETURN_IF_ERROR(check(era));
    return SharedTables::hash(era, clock);
  }
  Status load(uint64_t era, std::span<const std::string> shards) override {
    era_ = std::max(era, era_.load());
    return SharedTables::load(era, shards);
  }

 private:
  // As servers do.
  Status check(uint64_t era) const {
    if (era == era_) return {};
    return Error(ErrorKind::kInternal, "rows of era {}, and not {}", era, era_.load());
  }

  std::function<void()> progress_;
  std::shared_ptr<LocalTables> tables_;
  const Hooks& hooks_;
  std::atomic<uint64_t>& era_;
};

// Before its workers are started the servers are, as with a launcher.
class TrainerRowsTest : public TrainerTest {
 protected:
  explicit TrainerRowsTest(const char* job = kSync) : TrainerTest(job, 4) {
    registries_.tables = [this](const config::Job&) -> Result<std::unique_ptr<Tables>> {
      return std::unique_ptr<Tables>(std::make_unique<HookedTables>(tables_, hooks_, era_));
    };
    start_servers();
  }
  void start_servers() {
    tables_ = std::make_shared<LocalTables>(ps::setup_of(make_job(job_)));
    era_ = 0;
  }

  std::string result_of(const std::string& directory) {
    const auto result = open_run(directory).read_result();
    EXPECT_TRUE(result.has_value());
    return result ? result->value("weights_hash", "") : "";
  }
  std::vector<int64_t> saved_steps(const std::string& directory) {
    ckpt::SnapshotStore store(*files_, temp_.path() + "/" + directory + "/checkpoints", 10, true);
    std::vector<int64_t> steps;
    const auto snapshots = store.list();  // oldest first
    EXPECT_TRUE(snapshots.ok());
    if (!snapshots.ok()) return steps;
    for (const auto& snapshot : *snapshots) steps.push_back(snapshot.step);
    return steps;
  }
  // What the servers have is what their record says.
  void expect_replayed(int64_t step, const std::string& hash) {
    const auto shards = tables_->save(0, 0).value();
    const auto again = replay(make_job(job_), testing_registries(), *files_, shards, step, nullptr);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(again->replayed, hash);
    EXPECT_EQ(again->saved, hash);
  }

  std::shared_ptr<LocalTables> tables_;
  Hooks hooks_;
  std::atomic<uint64_t> era_{0};
};

class AsyncTrainerRowsTest : public TrainerRowsTest {
 protected:
  AsyncTrainerRowsTest() : TrainerRowsTest(kAsync) {}
};

void expect_done(const std::vector<Life>& lives) {
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kDone);
  }
}

TEST_F(TrainerRowsTest, AWorkerWhoseRowsAreAheadJoinsAgain) {
  std::atomic<int> reads{0};
  hooks_.read = [&](int64_t clock, std::vector<int64_t>& clocks) {
    if (clock != 13 || reads++ != 0) return;
    for (auto& at : clocks) ++at;  // as if the others had committed another step
  };
  const auto lives = together("run", {{}, {}});
  expect_done(lives);
  EXPECT_GT(reads, 4) << "the step was not computed again";
  EXPECT_GT(roster::sequence_of(coordinator_->status().roster.number), 1U);
  hooks_ = {};
  start_servers();
  const auto alone = live("alone", "");
  ASSERT_TRUE(alone.summary) << alone.error;
  EXPECT_EQ(result_of("run"), result_of("alone"));
}

TEST_F(TrainerRowsTest, OneThatSavesIsNotRemovedWhileRowsArrive) {
  hang_timeout_ = 1s;
  rebalance_every_ = 1h;
  std::atomic<int> saves{0};
  hooks_.save = [&](const std::function<void()>& progress) {
    if (saves++ != 0) return;
    for (int shard = 0; shard < 60; ++shard) {
      std::this_thread::sleep_for(50ms);
      if (progress) progress();
    }
  };
  expect_done(together("run", {{}, {}}));
  EXPECT_GE(saves, 3);
  EXPECT_EQ(roster::sequence_of(coordinator_->status().roster.number), 1U) << "nobody was removed";
}

TEST_F(TrainerRowsTest, AloneThereIsNobodyToJoin) {
  hooks_.read = [&](int64_t clock, std::vector<int64_t>& clocks) {
    if (clock != 13) return;
    for (auto& at : clocks) ++at;
  };
  const auto life = live("run", "");
  EXPECT_FALSE(life.summary);
  EXPECT_THAT(life.error, testing::HasSubstr("left behind"));
}

TEST_F(AsyncTrainerRowsTest, AWorkerWhoseTasksOthersHaveJoinsAgain) {
  std::atomic<int> looks{0};
  hooks_.order = [&](int64_t, LocalTables&, ps::OrderView& view) {
    if (view.first != 40 || view.finished < 4 || looks++ != 0) return;
    view.token += 1;  // as if another group had opened the round
  };
  const auto lives = together("run", {{}, {}});
  expect_done(lives);
  EXPECT_GT(looks, 1);
  EXPECT_GT(roster::sequence_of(coordinator_->status().roster.number), 1U);
  expect_replayed(30, result_of("run"));
}

// The group broke in the middle of the next round, so the rows are not those of this step any more.
TEST_F(AsyncTrainerRowsTest, ACheckpointThatComesTooLateIsLeftOut) {
  bool lost = false;
  hooks_.order = [&](int64_t from, LocalTables& tables, ps::OrderView& view) {
    const bool asks_whether_to_save = from == std::numeric_limits<int64_t>::max();
    if (lost || !asks_whether_to_save || view.end != 40 || !view.over()) return;
    lost = true;
    const ps::OpenRound open{.openings = view.openings,
                             .token = 5,
                             .first = 40,
                             .end = 80,
                             .staleness = -1,
                             .pushes = 1};
    ASSERT_TRUE(tables.push_order(0, ps::order_bytes(open)).ok());
    view = tables.order(0, from, false).value();
  };
  const auto life = live("run", "");
  ASSERT_TRUE(life.summary) << life.error;
  EXPECT_TRUE(lost);
  EXPECT_THAT(saved_steps("run"), ElementsAre(20, 30));
  expect_replayed(30, result_of("run"));

  start_servers();
  hooks_ = {};
  ASSERT_TRUE(live("undisturbed", "").summary);
  EXPECT_THAT(saved_steps("undisturbed"), ElementsAre(10, 20, 30));
  EXPECT_EQ(result_of("undisturbed"), result_of("run")) << "a worker alone is never late";
}

// All processes were lost between the last checkpoint and the result: nothing is trained any more.
TEST_F(AsyncTrainerRowsTest, TheResultOfARunThatWasCompleteIsOfItsRows) {
  expect_done(together("run", {{}, {}}));
  const auto result = result_of("run");
  expect_replayed(30, result);
  std::filesystem::remove(temp_.path() + "/run/result.json");
  start_servers();
  expect_done(together("run", {{}, {}}));
  EXPECT_EQ(result_of("run"), result);
}

TEST_F(AsyncTrainerRowsTest, ToldToStopARoundEndsAtTheNextStep) {
  const auto lives = together("run", {{10, SIGINT}, {10, SIGINT}});
  for (const auto& life : lives) {
    ASSERT_TRUE(life.summary) << life.error;
    EXPECT_EQ(life.summary->reason, EndReason::kSignal);
    EXPECT_EQ(life.summary->counters.step, lives[0].summary->counters.step);
  }
  const int64_t step = lives[0].summary->counters.step;
  EXPECT_GT(step, 10);
  EXPECT_LT(step, 20) << "the round was not cut";
  EXPECT_THAT(saved_steps("run"), ElementsAre(10, step));
  // And two others, with other servers, take it up again.
  start_servers();
  expect_done(together("run", {{}, {}}));
  expect_replayed(30, result_of("run"));
}

}  // namespace
}  // namespace muster::train
