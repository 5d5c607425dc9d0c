// Asynchronous training: workers that are threads of this process, with tables that they share.
#include "muster/train/step/server_rounds.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/base/file_system.h"
#include "muster/comm/local_group.h"
#include "muster/config/rounds.h"
#include "muster/ps/net/job_setup.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/replay.h"
#include "muster/train/rows/replay_tables.h"
#include "muster/train/rows/shared_tables_testing.h"
#include "muster/train/rows/task_rows.h"

namespace muster::train {
namespace {

const char* const kPoints = R"(
model: { layers: [ linear: { out: 16 }, relu, linear: { out: 2 } ] }
data: { train: { format: points, args: { size: 200 } }, test: { format: points, args: { size: 50 } } }
batch: 40
lanes: 4
steps: 10
optimizer: { kind: sgd, lr: 0.1 }
sync: { strategy: server, period: 3 }
tables: { shards: 5 }
)";

const char* const kClicks = R"(
model: { zoo: dlrm, loss: click }
data: { train: { format: ctr, args: { samples: 4000, features: 5, ids: 300, numbers: 2 } } }
batch: 37
lanes: 4
steps: 12
optimizer: { kind: adam, lr: 0.01, schedule: { kind: cosine, warmup: 2 }, clip: { norm: 0.5 } }
sync: { strategy: server, period: 5 }
tables: { width: 6, lr: 0.1, shards: 7 }
)";

struct Trained {
  std::vector<std::string> hashes;  // by worker
  std::vector<std::string> shards;
  std::vector<int64_t> rounds;  // steps of each
  double loss = 0;
};

// The tables of one worker.
using MakeTables = std::function<std::unique_ptr<Tables>(const std::shared_ptr<LocalTables>&)>;

Trained train(const std::string& text, const std::vector<std::string>& sets, int workers,
              const std::function<CommitFlags()>& flags = {}, const MakeTables& make_tables = {}) {
  const config::Job job = make_job(text, sets);
  const auto tables = std::make_shared<LocalTables>(ps::setup_of(job));
  Registries registries = sharing(testing_registries(), tables);
  if (make_tables) {
    registries.tables = [&](const config::Job&) -> Result<std::unique_ptr<Tables>> {
      return make_tables(tables);
    };
  }
  Trained trained;
  trained.hashes.resize(static_cast<size_t>(workers));
  std::vector<std::string> names;
  for (int rank = 0; rank < workers; ++rank) names.push_back("worker " + std::to_string(rank));
  const auto hub = comm::LocalHub::create(names);
  const auto work = [&](int rank) {
    auto opened = Session::open(job, registries);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    Session& session = **opened;
    if (rank == 0) {
      ASSERT_TRUE(session.rows()->load({}, 0).ok());
    }
    const auto group = hub->join(rank).value();
    const std::vector<std::vector<int>> units(static_cast<size_t>(workers));
    session.assign(units, *group, std::chrono::seconds(60), {}, {});
    while (session.arena().counters().step < session.total_steps()) {
      const auto report = session.step(flags);
      ASSERT_TRUE(report.ok()) << report.error().message();
      if (rank == 0) trained.rounds.push_back(report->steps);
    }
    const auto all = session.rows()->hash(session.arena().counters().step);
    trained.hashes[static_cast<size_t>(rank)] = hash_of_all(session.arena().weights_hash(), *all);
    if (rank == 0) trained.loss = session.last_step().loss;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
  trained.shards = tables->save(0, 0).value();
  return trained;
}

Replay replayed(const std::string& text, const std::vector<std::string>& sets,
                const Trained& trained) {
  const auto files = posix_file_system();
  const config::Job job = make_job(text, sets);
  const auto result = replay(job, testing_registries(), *files, trained.shards, job.steps, nullptr);
  EXPECT_TRUE(result.ok()) << result.error().message();
  return result.ok() ? *result : Replay{};
}

struct Mode {
  const char* name;
  const char* text;
  std::vector<std::string> sets;
};

class EveryMode : public ::testing::TestWithParam<Mode> {};

TEST_P(EveryMode, IsReplayedWithTheSameBits) {
  const auto& [name, text, sets] = GetParam();
  const Trained trained = train(text, sets, 3);
  for (const auto& hash : trained.hashes) EXPECT_EQ(hash, trained.hashes[0]);
  const Replay again = replayed(text, sets, trained);
  EXPECT_EQ(again.saved, trained.hashes[0]);
  EXPECT_EQ(again.replayed, trained.hashes[0]);
  const config::Job job = make_job(text, sets);
  EXPECT_EQ(again.pushes, config::tasks_of(job.sync, 4, job.steps));
  EXPECT_LT(static_cast<double>(again.record_bytes) / static_cast<double>(again.pushes), 40);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, EveryMode,
    ::testing::Values(
        Mode{"async", kPoints, {}}, Mode{"ssp", kPoints, {"sync.mode=ssp", "sync.staleness=2"}},
        Mode{"softsync", kPoints, {"sync.mode=softsync", "sync.pushes=2"}},
        Mode{"scaled", kPoints, {"sync.late=scale"}}, Mode{"fetch", kPoints, {"sync.fetch=3"}},
        Mode{"rows", kClicks, {}},
        // The last task of each lane has one step.
        Mode{"push_every", kPoints, {"sync.push_every=3"}},
        Mode{"push_every_fetch", kPoints, {"sync.push_every=3", "sync.fetch=2"}},
        Mode{"push_every_soft",
             kPoints,
             {"sync.mode=softsync", "sync.pushes=2", "sync.push_every=3", "sync.late=scale"}},
        Mode{"push_every_adagrad", kPoints, {"optimizer.kind=adagrad", "sync.push_every=3"}},
        Mode{"compensated", kPoints, {"sync.late=compensate", "sync.compensation=4"}},
        Mode{"compensated_fetch",
             kPoints,
             {"sync.late=compensate", "sync.compensation=4", "sync.mode=ssp", "sync.fetch=3"}},
        Mode{"compensated_rows", kClicks, {"sync.late=compensate", "sync.compensation=2"}},
        Mode{"soft_rows", kClicks, {"sync.mode=softsync", "sync.pushes=4", "sync.late=scale"}},
        Mode{"evicted",
             kClicks,
             {"steps=140", "tables.evict_after=4", "tables.admit_after=2", "tables.most_rows=200"}},
        Mode{"adagrad", kPoints, {"optimizer.kind=adagrad"}},
        Mode{"frozen", kPoints, {"model.freeze=['0.*']"}},
        Mode{"easgd", kPoints, {"sync.mode=easgd"}},
        // The last task of each lane has one step.
        Mode{"easgd_fetch", kPoints, {"sync.mode=easgd", "sync.fetch=3"}},
        Mode{"eamsgd",
             kPoints,
             {"sync.mode=easgd", "sync.fetch=3", "optimizer.momentum=0.9",
              "optimizer.nesterov=true", "optimizer.lr=0.02", "model.freeze=['0.*']"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ServerRounds, OneTaskAtATimeGivesTheSameBitsWithAnyNumberOfWorkers) {
  const std::vector<std::string> sets = {"sync.mode=ssp", "sync.staleness=0"};
  const Trained alone = train(kPoints, sets, 1);
  EXPECT_EQ(train(kPoints, sets, 3).hashes[0], alone.hashes[0]);
  EXPECT_EQ(train(kPoints, {}, 1).hashes[0], alone.hashes[0]) << "alone nothing is late";
  EXPECT_EQ(replayed(kPoints, sets, alone).most_staleness, 0);
}

// A worker alone with one lane takes the steps of sgd, whoever adds them up.
TEST(ServerRounds, PushesOfSeveralStepsAreThoseSteps) {
  const auto loss = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"lanes=1", "sync.period=10", "steps=20"};
    sets.insert(sets.end(), more.begin(), more.end());
    return train(kPoints, sets, 1).loss;
  };
  const double each = loss({});
  EXPECT_NEAR(loss({"sync.push_every=5"}), each, 1e-5 * each);
  EXPECT_NEAR(loss({"sync.push_every=10"}), each, 1e-5 * each);
  // Without steps of its own, a worker's gradients are all of the weights that it read.
  EXPECT_GT(std::abs(loss({"sync.push_every=5", "optimizer.kind=adagrad"}) -
                     loss({"optimizer.kind=adagrad"})),
            1e-3 * each);
}

// One worker does not say that it is done with a task before the others can do no more without it.
struct Held {
  static constexpr int64_t kTicket = 30;  // tickets are given in the order of tasks, from 1
  int64_t bound = 0;                      // places of the order when others have to wait
  std::atomic<int64_t> looks{0};          // of all workers, at the order
  std::atomic<int64_t> places{-1};        // when the worker goes on
};

class HoldingTables final : public SharedTables {
 public:
  HoldingTables(const std::shared_ptr<LocalTables>& tables, Held& held)
      : SharedTables(tables), tables_(tables), held_(held) {}
  Status push(const ps::PushHeader& header, std::span<const uint64_t> keys,
              std::span<const float> gradients) override {
    if (header.step == Held::kTicket) hold();
    return SharedTables::push(header, keys, gradients);
  }
  Result<ps::OrderView> order(uint64_t worker, int64_t from, bool results) override {
    ++held_.looks;
    return SharedTables::order(worker, from, results);
  }

 private:
  // Until the bound is reached, and then until the others have looked for tasks many times.
  void hold() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (places() < held_.bound && std::chrono::steady_clock::now() < until) rest();
    const int64_t reached = held_.looks;
    while (held_.looks < reached + 100 && std::chrono::steady_clock::now() < until) rest();
    held_.places = places();
  }
  int64_t places() { return tables_->order(0, 0, false).value().places(); }
  static void rest() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

  const std::shared_ptr<LocalTables> tables_;
  Held& held_;
};

TEST(ServerRounds, TheBoundIsReachedAndNothingIsLater) {
  for (const int64_t bound : {1, 2}) {
    const std::vector<std::string> sets = {"sync.mode=ssp", fmt::format("sync.staleness={}", bound),
                                           "sync.period=40", "steps=40"};
    Held held;
    // The tasks before it, and so many behind it.
    held.bound = Held::kTicket - 1 + bound;
    const Trained trained = train(kPoints, sets, 4, {}, [&](const auto& tables) {
      return std::make_unique<HoldingTables>(tables, held);
    });
    EXPECT_EQ(held.places, held.bound);
    const Replay again = replayed(kPoints, sets, trained);
    EXPECT_TRUE(again.equal());
    EXPECT_GE(again.most_staleness, bound);
    // A task may be overtaken by those that were under way when it was taken, and as many behind.
    EXPECT_LE(again.most_staleness, 2 * bound);
  }
}

// One of them asks for it within the first round.
TEST_P(EveryMode, ARoundThatIsCutShortIsReplayedWithTheSameBits) {
  const auto& [name, text, sets] = GetParam();
  auto longer = sets;
  longer.insert(longer.end(), {"sync.period=30", "steps=60"});
  std::atomic<int> asked{0};
  const Trained trained = train(text, longer, 3, [&] {
    CommitFlags flags;
    const int times = ++asked;
    if (times > 8 && times < 20) flags.stop = 2;
    return flags;
  });
  for (const auto& hash : trained.hashes) EXPECT_EQ(hash, trained.hashes[0]);
  ASSERT_FALSE(trained.rounds.empty());
  EXPECT_LT(trained.rounds[0], 30) << "it was not cut";
  EXPECT_EQ(std::accumulate(trained.rounds.begin(), trained.rounds.end(), int64_t{0}), 60);
  const Replay again = replayed(text, longer, trained);
  EXPECT_EQ(again.replayed, trained.hashes[0]);
  const auto job = make_job(text, longer);
  EXPECT_EQ(again.pushes, config::tasks_of(job.sync, job.lanes, 60));
}

// With a bound of 0, and an update for all lanes of a step, it is lockstep but for its rounding.
TEST(ServerRounds, AllPushesOfAStepTogetherAreLockstep) {
  const Trained soft = train(kPoints, {"sync.mode=softsync", "sync.pushes=4"}, 1);
  const auto lockstep = open_session(
      R"(
model: { layers: [ linear: { out: 16 }, relu, linear: { out: 2 } ] }
data: { train: { format: points, args: { size: 200 } }, test: { format: points, args: { size: 50 } } }
batch: 40
lanes: 4
steps: 10
optimizer: { kind: sgd, lr: 0.1 }
)",
      {});
  double loss = 0;
  for (int i = 0; i < 10; ++i) {
    const auto report = lockstep->step();
    ASSERT_TRUE(report.ok());
    if (i == 9) loss = report->loss;
  }
  // The last round has one step.
  EXPECT_NEAR(soft.loss, loss, 1e-4);
}

// They are on no server, and may come from a checkpoint.
TEST(ServerRounds, FrozenWeightsAreThoseOfTheState) {
  const auto loss_of = [](bool other) {
    const auto session = open_session(kPoints, {"model.freeze=['0.*']"});
    Arena& arena = session->arena();
    EXPECT_LT(arena.layout().block_elements(), arena.weights().size());
    if (other) {
      for (float& w : arena.weights().subspan(arena.layout().block_elements())) w *= 8;
    }
    EXPECT_TRUE(session->rows()->load({}, 0).ok());
    const auto report = session->step();
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->loss : 0;
  };
  EXPECT_EQ(loss_of(false), loss_of(false));
  EXPECT_NE(loss_of(true), loss_of(false));
}

TEST(ServerRounds, RowsAreSavedOnlyBetweenRounds) {
  const auto session = open_session(kPoints);
  TaskRows& tasks = *session->tasks();
  ASSERT_TRUE(tasks.load({}, 0).ok());
  ASSERT_TRUE(session->step().ok());
  EXPECT_TRUE(tasks.is_at(3).value());
  EXPECT_FALSE(tasks.is_at(2).value());
  ASSERT_TRUE(tasks.open(12, 24).ok());  // by somebody who is lost then
  EXPECT_FALSE(tasks.is_at(3).value());
  ASSERT_TRUE(session->step().ok());
  EXPECT_TRUE(tasks.is_at(6).value());
  const auto late = tasks.open(0, 12);
  EXPECT_FALSE(late.ok());
  EXPECT_TRUE(tasks.take_overtaken());
  EXPECT_FALSE(tasks.take_overtaken()) << "asked once";
}

TEST(ServerRounds, WhatCannotBeTrainedIsRefused) {
  const auto refused = [](const std::vector<std::string>& sets) {
    const auto session = Session::open(make_job(kPoints, sets), testing_registries());
    return !session.ok();
  };
  EXPECT_FALSE(refused({}));
  EXPECT_TRUE(refused({"model.layers=[ linear: { out: 16 }, batchnorm, linear: { out: 2 } ]"}));
}

TEST(ReplayTables, RowsAreReadAsTheyWere) {
  ps::TablesSetup setup;
  setup.shards = 3;
  setup.tables.resize(1);
  setup.tables[0].width = 2;
  setup.tables[0].optimizer.rule = ps::RowRule::kSgd;
  ReplayTables tables(setup, 4);
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6};
  std::vector<std::vector<float>> versions;
  std::vector<int64_t> clocks;
  for (int64_t update = 0; update <= 8; ++update) {
    auto& now = versions.emplace_back(keys.size() * 2);
    tables.read_now();
    ASSERT_TRUE(tables.read(0, keys, 0, now.data(), clocks).ok());
    for (int64_t back = 0; back <= std::min<int64_t>(update, 4); ++back) {
      const ps::PushRecord record{0, {std::vector<int64_t>(clocks.size(), update - back)}};
      tables.read_as(record);
      std::vector<float> old(keys.size() * 2);
      ASSERT_TRUE(tables.read(0, keys, 0, old.data(), clocks).ok());
      EXPECT_EQ(old, versions[static_cast<size_t>(update - back)]) << update << " " << back;
    }
    // Another row each time, and one always.
    const std::vector<uint64_t> changed = {1, 2 + static_cast<uint64_t>(update % 5)};
    const std::vector<float> gradients = {1, 2, 3, 4};
    const auto ticket = update + 1;
    ASSERT_TRUE(
        tables.push({.kind = ps::PushKind::kStage, .step = ticket, .lr = 0.1}, changed, gradients)
            .ok());
    const ps::PlacedPushes placed{.first = update,
                                  .pushes = 1,
                                  .oldest = 0,
                                  .placed = {{static_cast<uint64_t>(ticket), 1, 0}}};
    ASSERT_TRUE(tables.apply(0, placed).ok());
  }
  const ps::PushRecord too_old{7, {std::vector<int64_t>(clocks.size(), 1)}};
  tables.read_as(too_old);
  std::vector<float> rows(keys.size() * 2);
  EXPECT_FALSE(tables.read(0, keys, 0, rows.data(), clocks).ok());
}

// A task may have read a row that is evicted before its push has a place.
TEST(ReplayTables, EvictedRowsAreReadAsTheyWere) {
  ps::TablesSetup setup;
  setup.shards = 2;
  setup.tables.resize(1);
  setup.tables[0].width = 2;
  setup.tables[0].eviction = {.age = 2, .most = 0, .every = 3};
  ReplayTables tables(setup, 6);
  std::vector<uint64_t> keys(12);
  std::iota(keys.begin(), keys.end(), uint64_t{1});
  std::vector<float> first(keys.size() * 2);
  std::vector<std::vector<float>> versions;
  std::vector<int64_t> clocks;
  ASSERT_TRUE(tables.read(0, keys, 0, first.data(), clocks).ok());
  size_t evicted = 0;
  for (int64_t update = 0; update <= 24; ++update) {
    auto& now = versions.emplace_back(keys.size() * 2);
    tables.read_now();
    ASSERT_TRUE(tables.read(0, keys, 0, now.data(), clocks).ok());
    for (size_t i = 0; update > 0 && i < now.size(); i += 2) {
      evicted += now[i] == first[i] && versions[static_cast<size_t>(update) - 1][i] != first[i];
    }
    for (int64_t back = 0; back <= std::min<int64_t>(update, 6); ++back) {
      const ps::PushRecord record{0, {std::vector<int64_t>(clocks.size(), update - back)}};
      tables.read_as(record);
      std::vector<float> old(keys.size() * 2);
      ASSERT_TRUE(tables.read(0, keys, 0, old.data(), clocks).ok());
      EXPECT_EQ(old, versions[static_cast<size_t>(update - back)]) << update << " " << back;
    }
    const std::vector<uint64_t> changed = {keys[static_cast<size_t>(update) % keys.size()]};
    const std::vector<float> gradients = {1, 2};
    const auto ticket = update + 1;
    ASSERT_TRUE(
        tables.push({.kind = ps::PushKind::kStage, .step = ticket, .lr = 0.1}, changed, gradients)
            .ok());
    const ps::PlacedPushes placed{.first = update,
                                  .pushes = 1,
                                  .oldest = 0,
                                  .placed = {{static_cast<uint64_t>(ticket), 1, 0}}};
    ASSERT_TRUE(tables.apply(0, placed).ok());
  }
  EXPECT_GT(evicted, 10U);
}

}  // namespace
}  // namespace muster::train
