// Steps with all of the model on parameter servers: workers that are threads of this process, with
// tables that they share.
#include "muster/train/step/server_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muster/comm/local_group.h"
#include "muster/ps/net/job_setup.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/rows/shared_tables_testing.h"

namespace muster::train {
namespace {

// The last step is short: some of its lanes have no samples.
const char* const kPoints = R"(
model: { layers: [ linear: { out: 40 }, relu, linear: { out: 2 } ] }
data: { train: { format: points, args: { size: 181 } } }
batch: 40
lanes: 4
passes: 2
optimizer: { kind: sgd, lr: 0.1 }
sync: { strategy: server, mode: sync }
tables: { shards: 5 }
)";

const char* const kClicks = R"(
model: { zoo: dlrm, loss: click }
data: { train: { format: ctr, args: { samples: 4000, features: 5, ids: 300, numbers: 2 } } }
batch: 37
lanes: 4
steps: 10
optimizer: { kind: adam, lr: 0.01, schedule: { kind: cosine, warmup: 2 } }
sync: { strategy: server, mode: sync }
tables: { width: 6, lr: 0.1, shards: 7 }
)";

// Bags of ids with values.
const char* const kBags = R"(
model: { layers: [ embedding_bag, linear: { out: 8 }, relu, linear: { out: classes } ], loss: click }
data: { train: { format: libsvm, path: VALUES, args: { features: 6, values: true } } }
batch: 37
lanes: 4
steps: 10
optimizer: { kind: adam, lr: 0.01 }
tables: { width: 6, lr: 0.1, shards: 7 }
)";

constexpr auto kTimeout = std::chrono::seconds(60);

// Lane l is computed by worker l % workers.
std::vector<std::vector<int>> dealt(int64_t lanes, int workers) {
  std::vector<std::vector<int>> units(static_cast<size_t>(workers));
  for (int lane = 0; lane < lanes; ++lane) {
    units[static_cast<size_t>(lane % workers)].push_back(lane);
  }
  return units;
}

std::string state_of(Session& session) {
  const auto rows = session.rows()->hash(session.arena().counters().step);
  return hash_of_all(session.arena().weights_hash(), rows.value());
}

// What each worker has at the end.
std::vector<std::string> train(const std::string& text, const std::vector<std::string>& sets,
                               int workers) {
  const config::Job job = make_job(with_bags(text), sets);
  const auto registries =
      sharing(testing_registries(), std::make_shared<LocalTables>(ps::setup_of(job)));
  std::vector<std::string> names;
  for (int rank = 0; rank < workers; ++rank) names.push_back("worker " + std::to_string(rank));
  const auto hub = comm::LocalHub::create(names);
  std::vector<std::string> states(static_cast<size_t>(workers));
  const auto work = [&](int rank) {
    auto opened = Session::open(job, registries);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    Session& session = **opened;
    const auto group = hub->join(rank).value();
    if (rank == 0) {
      ASSERT_TRUE(session.rows()->load({}, 0).ok());
    }
    ASSERT_TRUE(group->barrier({.timeout = kTimeout}).ok());
    session.assign(dealt(job.lanes, workers), *group, kTimeout, {}, {});
    while (session.arena().counters().step < session.total_steps()) {
      const auto report = session.step();
      ASSERT_TRUE(report.ok()) << report.error().message();
    }
    // In lockstep, one worker tells the tables of the last commit.
    ASSERT_TRUE(group->barrier({.timeout = kTimeout}).ok());
    states[static_cast<size_t>(rank)] = state_of(session);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
  return states;
}

struct Kind {
  const char* name;
  const char* text;
  std::vector<std::string> sets;
};

class EveryKind : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryKind, GivesTheSameBitsWithAnyWorkersAndThreads) {
  const auto& [name, text, sets] = GetParam();
  const auto expected = train(text, sets, 1)[0];
  for (const int workers : {1, 2, 4}) {
    for (const char* const threads : {"threads=1", "threads=3"}) {
      auto more = sets;
      more.emplace_back(threads);
      for (const auto& state : train(text, more, workers)) {
        EXPECT_EQ(state, expected) << workers << " workers, " << threads;
      }
    }
  }
  auto other = sets;
  other.emplace_back("optimizer.lr=0.03");
  EXPECT_NE(train(text, other, 1)[0], expected) << "the weights are not trained";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryKind,
    ::testing::Values(Kind{"sgd", kPoints, {}},
                      Kind{"adagrad", kPoints, {"optimizer.kind=adagrad"}},
                      Kind{"frozen", kPoints, {"model.freeze=['0.*']"}}, Kind{"rows", kClicks, {}},
                      Kind{"bags", kBags, {"sync.strategy=server", "sync.mode=sync"}},
                      Kind{"bags_in_lockstep", kBags, {}}),
    [](const auto& info) { return std::string(info.param.name); });

// The same job on one worker that has the optimizer itself.
std::vector<float> plain(std::string text, const std::vector<std::string>& sets) {
  const auto at = text.find("sync:");
  text = text.substr(0, at);
  const auto session = open_session(text, sets);
  while (session->arena().counters().step < session->total_steps()) {
    EXPECT_TRUE(session->step().ok());
  }
  const auto weights = session->arena().weights();
  return {weights.begin(), weights.end()};
}

TEST(ServerSteps, IsTheSameTrainingAsOnOneWorkerButForRounding) {
  const std::vector<std::vector<std::string>> kinds = {
      {}, {"optimizer.kind=adam", "optimizer.lr=0.01"}, {"optimizer.kind=adagrad"}};
  for (const auto& sets : kinds) {
    const auto session = open_session(kPoints, sets);
    ASSERT_TRUE(session->rows()->load({}, 0).ok());
    const auto weights = session->arena().weights();
    const std::vector<float> before(weights.begin(), weights.end());
    while (session->arena().counters().step < session->total_steps()) {
      ASSERT_TRUE(session->step().ok());
    }
    const auto expected = plain(kPoints, sets);
    ASSERT_EQ(weights.size(), expected.size());
    double moved = 0;
    double off = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      moved += std::pow(double{expected[i]} - before[i], 2);
      off += std::pow(double{expected[i]} - weights[i], 2);
    }
    EXPECT_GT(moved, 0.01) << sets.size();
    EXPECT_LT(std::sqrt(off), 1e-3 * std::sqrt(moved)) << sets.size();
    EXPECT_GT(off, 0) << "the sums are rounded in another way, so this compares nothing";
  }
}

// ---- Workers that are lost between the parts of a step.

// A worker with all lanes, and another one that only takes part in what the group does.
struct Pair {
  explicit Pair(const std::shared_ptr<LocalTables>& tables)
      : registries(sharing(testing_registries(), tables)),
        hub(comm::LocalHub::create({"worker", "other"})) {
    auto opened = Session::open(make_job(kPoints), registries);
    EXPECT_TRUE(opened.ok());
    session = *std::move(opened);
    group = hub->join(0).value();
    other = hub->join(1).value();
    session->assign({{0, 1, 2, 3}, {}}, *group, kTimeout, {}, {});
  }
  Strategy& strategy() { return session->strategy(); }
  void work_alone() {
    group = comm::solo_group("worker");
    session->assign({{0, 1, 2, 3}}, *group, kTimeout, {}, {});
  }

  Registries registries;
  std::shared_ptr<comm::LocalHub> hub;
  std::unique_ptr<comm::Group> group;
  std::unique_ptr<comm::Group> other;
  std::unique_ptr<Session> session;
};

// Notes which steps were committed.
class NotingTables : public LocalTables {
 public:
  using LocalTables::LocalTables;
  Status commit(uint64_t era, int64_t step) override {
    committed.push_back(step);
    return LocalTables::commit(era, step);
  }
  std::vector<int64_t> committed;
};

class LostWorkers : public ::testing::Test {
 protected:
  void SetUp() override {
    const config::Job job = make_job(kPoints);
    tables_ = std::make_shared<NotingTables>(ps::setup_of(job));
    expected_ = train(kPoints, {"passes=0", "steps=2"}, 1)[0];
  }

  // The other one is lost when this worker has pushed its lanes.
  static void fail_in_commit(Pair& pair) {
    EXPECT_FALSE(pair.session
                     ->step([&] {
                       pair.other->abort("lost");
                       return CommitFlags{};
                     })
                     .ok());
  }
  // The other one is lost when it has seen the commit.
  static void fail_after_commit(Pair& pair) {
    std::thread other([&] {
      std::vector<uint8_t> message(pair.strategy().message_bytes().size());
      EXPECT_TRUE(pair.other->allreduce_max(message, {.timeout = kTimeout}).ok());
      pair.other->abort("lost");
    });
    EXPECT_FALSE(pair.session->step().ok());
    other.join();
  }
  int64_t clock() {
    std::vector<int64_t> clocks;
    std::vector<float> row(256);
    const std::vector<uint64_t> keys = {0};
    EXPECT_TRUE(tables_->read(0, keys, 0, row.data(), clocks).ok());
    return clocks[0];
  }

  std::shared_ptr<NotingTables> tables_;
  std::string expected_;  // after two steps
};

TEST_F(LostWorkers, AStepWithoutACommitIsComputedAgain) {
  Pair pair(tables_);
  ASSERT_TRUE(pair.session->rows()->load({}, 0).ok());
  fail_in_commit(pair);
  EXPECT_EQ(pair.strategy().position(), (roster::Position{0, 0}));
  EXPECT_TRUE(pair.strategy().holds_sums());
  EXPECT_EQ(clock(), 0);
  pair.work_alone();
  ASSERT_TRUE(pair.session->step().ok());
  ASSERT_TRUE(pair.session->step().ok());
  EXPECT_EQ(state_of(*pair.session), expected_);
}

TEST_F(LostWorkers, AStepThatWasCommittedIsPublishedInTheNextGroup) {
  Pair pair(tables_);
  ASSERT_TRUE(pair.session->rows()->load({}, 0).ok());
  fail_after_commit(pair);
  EXPECT_EQ(pair.strategy().position(), (roster::Position{1, 0}));
  EXPECT_FALSE(pair.strategy().is_complete());
  EXPECT_EQ(pair.strategy().message_of(), (roster::Position{0, 0}));
  EXPECT_EQ(clock(), 0) << "the servers were told before everybody knew";
  pair.work_alone();
  ASSERT_TRUE(pair.session->publish_rows().ok());
  EXPECT_EQ(pair.strategy().position(), (roster::Position{1, 1}));
  EXPECT_TRUE(pair.strategy().is_complete());
  ASSERT_TRUE(pair.session->publish_rows().ok());
  EXPECT_EQ(clock(), 1);
  ASSERT_TRUE(pair.session->step().ok());
  EXPECT_EQ(state_of(*pair.session), expected_);
}

// The worker that told them may be lost when others have the weights, and some shards do not know.
TEST_F(LostWorkers, ServersAreToldAgainInTheNextGroup) {
  Pair pair(tables_);
  ASSERT_TRUE(pair.session->rows()->load({}, 0).ok());
  fail_after_commit(pair);
  pair.work_alone();
  ASSERT_TRUE(pair.session->publish_rows().ok());
  ASSERT_TRUE(pair.strategy().is_complete());
  tables_->committed.clear();
  pair.work_alone();
  ASSERT_TRUE(pair.session->publish_rows().ok());
  EXPECT_EQ(tables_->committed, std::vector<int64_t>{0});
}

// One that has missed the commit, and then the weights, takes both from one that has them.
TEST_F(LostWorkers, WhatWasMissedIsRolledForward) {
  Pair late(tables_);
  Pair ahead(tables_);
  ASSERT_TRUE(ahead.session->rows()->load({}, 0).ok());
  fail_in_commit(late);
  fail_after_commit(ahead);
  const auto same_state = [&] {
    return std::ranges::equal(late.strategy().bytes(), ahead.strategy().bytes());
  };
  ASSERT_EQ(ahead.strategy().message_of(), late.strategy().position());
  ASSERT_TRUE(late.strategy().holds_sums());
  ASSERT_TRUE(late.strategy().apply_message(ahead.strategy().message_bytes()).value());
  EXPECT_EQ(late.strategy().position(), ahead.strategy().position());
  EXPECT_TRUE(same_state());

  ahead.work_alone();
  ASSERT_TRUE(ahead.session->publish_rows().ok());
  EXPECT_FALSE(same_state());
  ASSERT_EQ(ahead.strategy().message_of(), late.strategy().position());
  ASSERT_TRUE(late.strategy().holds_sums());
  ASSERT_TRUE(late.strategy().apply_message(ahead.strategy().message_bytes()).value());
  EXPECT_EQ(late.strategy().position(), ahead.strategy().position());
  EXPECT_TRUE(same_state());

  late.work_alone();
  ASSERT_TRUE(late.session->step().ok());
  EXPECT_EQ(state_of(*late.session), expected_);
  // The other one does the same step again, which changes nothing any more.
  ASSERT_TRUE(ahead.session->step().ok());
  EXPECT_EQ(state_of(*ahead.session), expected_);
}

TEST_F(LostWorkers, OneThatWasLeftBehindNotesIt) {
  Pair slow(tables_);
  Pair other(tables_);
  ASSERT_TRUE(slow.session->rows()->load({}, 0).ok());
  other.work_alone();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(other.session->step().ok());
  slow.work_alone();
  const auto report = slow.session->step();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message().find("was left behind"), std::string::npos)
      << report.error().message();
  EXPECT_TRUE(slow.session->rows()->take_overtaken()) << "the trainer leaves the group then";
}

// ---- What cannot be trained.

TEST(ServerSteps, NotFiniteStopsWithStepAndLane) {
  const auto session = open_session(kPoints, {"data.train.args.poison=7"});
  ASSERT_TRUE(session->rows()->load({}, 0).ok());
  std::string message;
  while (message.empty() && session->arena().counters().step < session->total_steps()) {
    const auto report = session->step();
    if (!report.ok()) message = report.error().message();
  }
  EXPECT_NE(message.find("sample 7 of data.train holds a number that is not finite"),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find("skip"), std::string::npos) << message;
}

TEST(ServerSteps, RunningStatisticsAreRefused) {
  const auto session = Session::open(
      make_job(kPoints, {"model.layers=[ linear: { out: 16 }, batchnorm, linear: { out: 2 } ]"}),
      testing_registries());
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.error().message().find("running statistics"), std::string::npos);
}

}  // namespace
}  // namespace muster::train
