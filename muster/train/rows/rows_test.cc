// Rows of tables: the same bits for any number of threads, after going back, and whatever holds
// them.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/ps/net/job_setup.h"
#include "muster/train/jobs_testing.h"
#include "muster/train/rows/shared_tables_testing.h"
#include "muster/train/rows/step_rows.h"
#include "muster/train/rows/sync_rows.h"

namespace muster::train {
namespace {

const char* const kClicks = R"(
model: { zoo: ZOO, loss: click }
data:
  train: { format: ctr, args: { samples: 4000, features: 5, ids: 300, numbers: 2 } }
  test: { format: ctr, args: { samples: 600, stream: 1, features: 5, ids: 300, numbers: 2 } }
batch: 37
lanes: 4
steps: 8
optimizer: { kind: adam, lr: 0.01, schedule: { kind: cosine, warmup: 2 } }
tables: { width: 6, lr: 0.1 }
)";

std::string job_with(const std::string& zoo) {
  std::string text = kClicks;
  return text.replace(text.find("ZOO"), 3, zoo);
}

void train(Session& session, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) {
    const auto report = session.step();
    ASSERT_TRUE(report.ok()) << report.error().message();
  }
}

std::string state_of(Session& session) {
  const auto rows = session.rows()->hash(session.arena().counters().step);
  EXPECT_TRUE(rows.ok());
  return session.arena().weights_hash().hex() + " " + rows->hex();
}

std::string trained(const std::string& text, const std::vector<std::string>& sets) {
  const auto session = open_session(text, sets);
  train(*session, session->total_steps());
  return state_of(*session);
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto text = job_with(GetParam());
  const auto expected = trained(text, {"threads=1"});
  EXPECT_EQ(trained(text, {"threads=3"}), expected);
  EXPECT_EQ(trained(text, {"threads=2", "tables.shards=7", "data.loader.threads=0"}),
            trained(text, {"threads=1", "tables.shards=7"}));
  EXPECT_NE(trained(text, {"threads=1", "tables.lr=0.2"}), expected) << "rows have no effect";
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryModel,
                         ::testing::Values("dlrm", "deepfm", "wide-deep", "two-tower"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

const char* const kBags = R"(
model: MODEL
data: { train: { format: libsvm, path: PATH, args: { features: 6, values: HAS } } }
batch: 37
lanes: 4
steps: 12
optimizer: { kind: adam, lr: 0.01 }
tables: { width: 6, lr: 0.1 }
)";

// path: VALUES or IDS, as with_bags() takes them.
std::string bags_job(const std::string& model, const std::string& path, bool values) {
  std::string text = kBags;
  const auto put = [&](const std::string& name, const std::string& value) {
    text.replace(text.find(name), name.size(), value);
  };
  put("MODEL", model);
  put("PATH", path);
  put("HAS", values ? "true" : "false");
  return with_bags(std::move(text));
}

TEST(Rows, BagsOfIdsGiveTheSameBitsOnAnyNumberOfThreads) {
  const std::string layers =
      "{ layers: [ BAG, linear: { out: 8 }, relu, linear: { out: classes } ] }";
  const auto with = [&](const std::string& bag) {
    std::string model = layers;
    return model.replace(model.find("BAG"), 3, bag);
  };
  const std::string deepfm = "{ zoo: deepfm, loss: click }";
  std::set<std::string> all;
  for (const std::string& text : {bags_job(with("embedding_bag"), "VALUES", true),
                                  bags_job(with("embedding_bag"), "IDS", false),
                                  bags_job(with("embedding_bag: { mode: mean }"), "IDS", false),
                                  bags_job(deepfm, "VALUES", true)}) {
    const auto expected = trained(text, {"threads=1"});
    EXPECT_EQ(trained(text, {"threads=3"}), expected) << text;
    EXPECT_EQ(trained(text, {"threads=2", "data.loader.threads=0"}), expected) << text;
    EXPECT_NE(trained(text, {"threads=1", "tables.lr=0.2"}), expected) << text;
    EXPECT_TRUE(all.insert(expected).second) << "values, or the mean, have no effect: " << text;
    EXPECT_EQ(trained(text, {"data.train.read=blocks", "data.order=full", "data.block=4KiB"}),
              expected)
        << text;
  }
}

// Values cost memory and time, and nothing else.
TEST(Rows, IdsWhoseValuesAreAllOneGiveTheBitsWithoutValues) {
  for (const std::string model :
       {"{ layers: [ embedding_bag, linear: { out: 8 }, relu, linear: { out: classes } ] }",
        "{ zoo: deepfm, loss: click }"}) {
    EXPECT_EQ(trained(bags_job(model, "IDS", true), {}),
              trained(bags_job(model, "IDS", false), {}));
  }
}

TEST(Rows, RowsThatComeAndGoGiveTheSameBitsOnAnyNumberOfThreads) {
  const auto text = job_with("dlrm");
  const std::vector<std::string> sets = {"steps=100", "tables.shards=5", "tables.admit_after=2",
                                         "tables.evict_after=3", "tables.most_rows=150"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), sets.begin(), sets.end());
    return trained(text, more);
  };
  const auto expected = with({"threads=1"});
  EXPECT_EQ(with({"threads=3"}), expected);
  for (const char* const other : {"tables.admit_after=1", "tables.evict_after=4",
                                  "tables.most_rows=100", "tables.admit_probability=0.5"}) {
    auto changed = sets;
    changed.emplace_back(other);
    EXPECT_NE(trained(text, changed), expected) << other;
  }
}

TEST(Rows, RowsAreUpdatedOnceForAStep) {
  const auto session = open_session(job_with("dlrm"));
  const uint64_t keys[] = {1, 2};
  std::vector<float> before(12);
  session->rows()->read(0, model::RowSource::kNoLane, keys, before.data());
  // The same lane twice, as after a failure, and another one.
  const std::vector<float> gradients(12, 0.25F);
  for (const int lane : {0, 1, 0}) session->rows()->add(0, lane, keys, gradients.data());
  std::vector<float> meanwhile(12);
  session->rows()->read(0, model::RowSource::kNoLane, keys, meanwhile.data());
  EXPECT_EQ(meanwhile, before) << "nothing changes before the commit";
  ASSERT_TRUE(session->rows()->commit(0).ok());
  ASSERT_TRUE(session->rows()->commit(0).ok());
  std::vector<float> after(12);
  session->rows()->read(1, model::RowSource::kNoLane, keys, after.data());
  // row_adagrad at its first update: g / sqrt(g^2).
  const double lr = 0.1 / 3;  // the first step of the warm-up
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i] - lr, 1e-6);
}

// The first step that sees an update is the third after it.
TEST(Rows, StaleRowsAreThoseOfStepsAgo) {
  const auto session = open_session(job_with("dlrm"), {"tables.staleness=2"});
  StepRows& rows = *session->rows();
  const uint64_t keys[] = {1, 2};
  const std::vector<float> gradients(12, 0.25F);
  std::vector<std::vector<float>> after;  // so many steps
  for (int64_t step = 0; step < 6; ++step) {
    after.emplace_back(12);
    rows.read(step, model::RowSource::kNoLane, keys, after.back().data());
    std::vector<float> trained(12);
    rows.read(step, 1, keys, trained.data());
    EXPECT_EQ(trained, after[static_cast<size_t>(std::max<int64_t>(step - 2, 0))]) << step;
    rows.add(step, 0, keys, gradients.data());
    ASSERT_TRUE(rows.commit(step).ok());
    if (step == 3) {  // a checkpoint has what the next steps need
      const auto saved = rows.save(4);
      ASSERT_TRUE(saved.ok());
      ASSERT_TRUE(rows.load(*saved, 0).ok());
    }
  }
  EXPECT_NE(after[5], after[4]);
}

TEST(Rows, StaleRowsGiveTheSameBitsOnAnyNumberOfThreads) {
  const auto text = job_with("dlrm");
  const auto expected = trained(text, {"threads=1", "tables.staleness=1"});
  EXPECT_EQ(trained(text, {"threads=3", "tables.staleness=1"}), expected);
  EXPECT_NE(trained(text, {"threads=1"}), expected);
}

// The others have returned to a checkpoint, and trained something else since.
TEST(Rows, WhatWasAskedForInAnotherEraIsNotUsed) {
  const auto tables = std::make_shared<LocalTables>(ps::setup_of(make_job(job_with("dlrm"))));
  SyncRows rows(std::make_unique<SharedTables>(tables));
  SyncRows others(std::make_unique<SharedTables>(tables));
  const std::vector<uint64_t> keys = {1, 2};
  const auto train_step = [&](SyncRows& by, int64_t step, float gradient) {
    by.set_learning_rate([](int64_t /*step*/) { return 0.1; });
    const std::vector<float> gradients(12, gradient);
    by.add(step, 0, keys, gradients.data());
    ASSERT_TRUE(by.commit(step).ok());
  };
  train_step(rows, 0, 0.25F);
  const auto saved = rows.save(1);
  ASSERT_TRUE(saved.ok());
  train_step(rows, 1, 0.25F);
  rows.prefetch(2, 0, keys);
  std::vector<float> before(12), now(12), read(12);
  rows.read(2, model::RowSource::kNoLane, keys, before.data());

  ASSERT_TRUE(others.load(*saved, 5).ok());
  others.set_era(5);
  train_step(others, 1, -0.5F);
  others.read(2, model::RowSource::kNoLane, keys, now.data());
  ASSERT_NE(now, before);
  rows.set_era(5);
  rows.read(2, 0, keys, read.data());
  EXPECT_EQ(read, now);
}

TEST(Rows, WhatIsSavedIsLoaded) {
  const auto session = open_session(job_with("deepfm"));
  train(*session, 4);
  const auto then = state_of(*session);
  const auto saved = session->rows()->save(4);
  ASSERT_TRUE(saved.ok());
  std::vector<std::byte> arena(session->arena().bytes().begin(), session->arena().bytes().end());
  train(*session, 4);
  const auto end = state_of(*session);
  EXPECT_NE(end, then);
  std::ranges::copy(arena, session->arena().bytes().begin());
  session->arena().seal_counters();
  session->strategy().forget();
  ASSERT_TRUE(session->rows()->load(*saved, 0).ok());
  EXPECT_EQ(state_of(*session), then);

  const auto other = open_session(job_with("deepfm"), {"tables.shards=3"});
  EXPECT_FALSE(other->rows()->load(*saved, 0).ok()) << "another number of shards";
}

TEST(Rows, TheFingerprintLeavesNothingBehind) {
  const auto session = open_session(job_with("dlrm"));
  const auto before = session->rows()->hash(0);
  ASSERT_TRUE(session->begin_fingerprint().ok());
  EXPECT_EQ(*session->rows()->hash(0), *before);
  train(*session, 8);
  EXPECT_EQ(state_of(*session), trained(job_with("dlrm"), {}));
}

TEST(Rows, EvaluationHasTheMetricsOfClicks) {
  const auto session = open_session(job_with("dlrm"), {"threads=2"});
  train(*session, 8);
  const auto report = session->evaluate();
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_GT(report->at("auc"), 0.3);
  EXPECT_LT(report->at("auc"), 1.0);
  EXPECT_GT(report->at("normalized_entropy"), 0.5);
  // The batches in which it is computed have no effect on the counts.
  const auto other = open_session(job_with("dlrm"), {"threads=1", "eval.batch=7"});
  train(*other, 8);
  EXPECT_EQ(other->evaluate()->at("auc"), report->at("auc"));
}

TEST(Rows, AJobWithoutTablesSaysWhatIsMissing) {
  auto text = job_with("dlrm");
  text.resize(text.find("tables:"));
  const auto session = Session::open(make_job(text), testing_registries());
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.error().message().find("tables.width"), std::string::npos)
      << session.error().message();
}

}  // namespace
}  // namespace muster::train
