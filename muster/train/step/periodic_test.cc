// Periodic strategies against a reference in double precision; and what is special about rounds.
#include "muster/train/step/periodic.h"

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"
#include "muster/train/step/periodic_testing.h"

namespace muster::train {
namespace {

const char* const kJob = R"(
model: { layers: [{ linear: { out: 2 } }] }
data: { train: { format: points } }
batch: 24
lanes: 8
steps: 31
optimizer: { kind: sgd, lr: 0.3, momentum: 0.9 }
sync: { strategy: average, replicas: 4, period: 7 }
)";

Vector train(Session& session) {
  while (session.arena().counters().step < session.total_steps()) {
    const auto report = session.step();
    EXPECT_TRUE(report.ok()) << report.error().message();
    if (!report.ok()) break;
  }
  return flat(session);
}

std::vector<std::string> with_optimizer(std::vector<std::string> sets,
                                        const std::string& optimizer) {
  if (optimizer == "adam") {
    for (const char* set : {"optimizer.kind=adam", "optimizer.lr=0.05", "optimizer.momentum=0"}) {
      sets.emplace_back(set);
    }
  }
  if (optimizer == "muon") {
    for (const char* set : {"optimizer.kind=muon", "optimizer.lr=0.05", "optimizer.momentum=0.9"}) {
      sets.emplace_back(set);
    }
  }
  return sets;
}

void expect_near(const Vector& w, const Vector& expected, double off = 2e-5) {
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], off) << i;
}

class PeriodicTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(PeriodicTest, FollowsItsFormula) {
  const auto& [strategy, optimizer, state] = GetParam();
  std::vector<std::string> sets = {"sync.strategy=" + strategy, "sync.inner_state=" + state};
  const auto session = open_session(kJob, with_optimizer(sets, optimizer));
  const auto expected = reference(*session, flat(*session));
  expect_near(train(*session), expected);
}

INSTANTIATE_TEST_SUITE_P(Rows, PeriodicTest,
                         ::testing::Combine(::testing::Values("average", "bmuf", "diloco", "easgd"),
                                            ::testing::Values("sgd", "adam"),
                                            ::testing::Values("reset", "average")),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

INSTANTIATE_TEST_SUITE_P(Muon, PeriodicTest,
                         ::testing::Combine(::testing::Values("muloco", "average"),
                                            ::testing::Values("muon"),
                                            ::testing::Values("reset", "average")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<2>(info.param));
                         });

class RadialTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(RadialTest, FollowsItsFormula) {
  const auto& [strategy, optimizer] = GetParam();
  const std::vector<std::string> sets = {"sync.strategy=" + strategy, "sync.merge=radial",
                                         "sync.inner_state=average"};
  const auto session = open_session(kJob, with_optimizer(sets, optimizer));
  const auto expected = reference(*session, flat(*session));
  // The two biases change by opposite amounts, so directions of replicas may cancel each other, and
  // what is left is rounding.
  expect_near(train(*session), expected, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Rows, RadialTest,
                         ::testing::Combine(::testing::Values("average", "bmuf", "diloco"),
                                            ::testing::Values("sgd", "adam")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

// With desloc, sparta and local-then-lockstep.
class OtherRowsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OtherRowsTest, Desloc) {
  const std::vector<std::string> sets = {"sync.strategy=desloc", "sync.period=3", "sync.rounds=4"};
  const auto session = open_session(kJob, with_optimizer(sets, GetParam()));
  const auto expected = reference_of_desloc(*session, flat(*session));
  expect_near(train(*session), expected);
}

TEST_P(OtherRowsTest, Sparta) {
  const std::vector<std::string> sets = {"sync.strategy=sparta", "sync.period=2", "sync.rounds=4",
                                         "sync.keep=1200", "sync.inner_state=average"};
  const auto session = open_session(kJob, with_optimizer(sets, GetParam()));
  const auto expected = reference_of_sparta(*session, flat(*session));
  expect_near(train(*session), expected);
}

TEST_P(OtherRowsTest, LocalThenLockstep) {
  const std::vector<std::string> sets = {"sync.strategy=local-then-lockstep", "sync.local=0.6"};
  const auto session = open_session(kJob, with_optimizer(sets, GetParam()));
  const auto expected = reference_of_local_then_lockstep(*session, flat(*session));
  expect_near(train(*session), expected);
}

INSTANTIATE_TEST_SUITE_P(Rows, OtherRowsTest, ::testing::Values("sgd", "adam"),
                         [](const auto& info) { return info.param; });

TEST(Periodic, RoundsEndWhereLockstepBegins) {
  const auto session =
      open_session(kJob, {"sync.strategy=local-then-lockstep", "sync.local=0.6", "steps=22"});
  std::vector<int64_t> steps;
  while (session->arena().counters().step < session->total_steps()) {
    const auto report = session->step();
    ASSERT_TRUE(report.ok());
    steps.push_back(report->steps);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{7, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

class KeepingTest : public PeriodicTest {};

TEST_P(KeepingTest, FollowsItsFormula) {
  const auto& [strategy, optimizer, state] = GetParam();
  std::vector<std::string> sets = {"sync.strategy=" + strategy, "sync.inner_state=" + state};
  if (strategy == "sparseloco") {
    // One commit, as what is kept is rounded to 8 bits by each. Six of eight weights are sent:
    // those of the two classes are opposites, so that an odd number would leave it to rounding
    // which of two is larger.
    sets.insert(sets.end(), {"sync.keep=3072", "sync.rounds=8"});
  } else {
    sets.emplace_back("sync.rounds=2");
  }
  const auto session = open_session(kJob, with_optimizer(sets, optimizer));
  const auto expected = reference_that_keeps(*session, flat(*session));
  expect_near(train(*session), expected);
}

INSTANTIATE_TEST_SUITE_P(Rows, KeepingTest,
                         ::testing::Combine(::testing::Values("gossip", "sparseloco"),
                                            ::testing::Values("sgd", "adam"),
                                            ::testing::Values("reset", "average")),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

class StreamingTest : public PeriodicTest {};

TEST_P(StreamingTest, FollowsItsFormula) {
  const auto& [strategy, optimizer, state] = GetParam();
  std::vector<std::string> sets = {"sync.strategy=" + strategy,
                                   "sync.inner_state=" + state,
                                   "sync.period=6",
                                   "sync.fragments=2",
                                   "sync.rounds=2",
                                   "sync.blend=0.3"};
  const auto session = open_session(kJob, with_optimizer(sets, optimizer));
  const auto expected = reference_of_streaming(*session, flat(*session));
  expect_near(train(*session), expected);
}

INSTANTIATE_TEST_SUITE_P(Rows, StreamingTest,
                         ::testing::Combine(::testing::Values("streaming"),
                                            ::testing::Values("sgd", "adam"),
                                            ::testing::Values("reset", "average")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<1>(info.param),
                                              std::get<2>(info.param));
                         });

class GradientsTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Without the period, which is one step.
std::string job_of_gradients() {
  std::string text = kJob;
  const std::string period = ", period: 7";
  return text.erase(text.find(period), period.size());
}

TEST_P(GradientsTest, FollowsItsFormula) {
  const auto& [strategy, optimizer] = GetParam();
  std::vector<std::string> sets = {"sync.strategy=" + strategy};
  // See KeepingTest.
  if (strategy == "topk") sets.emplace_back("sync.keep=3072");
  if (strategy == "threshold") sets.emplace_back("sync.threshold=0.7");
  const auto session = open_session(job_of_gradients(), with_optimizer(sets, optimizer));
  const auto expected = reference_of_gradients(*session, flat(*session));
  expect_near(train(*session), expected);
}

INSTANTIATE_TEST_SUITE_P(Rows, GradientsTest,
                         ::testing::Combine(::testing::Values("topk", "threshold", "onebit",
                                                              "powersgd"),
                                            ::testing::Values("sgd", "adam")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

// The last step has 7 samples: two of the four replicas have one lane, one has two, one has none.
TEST(Periodic, SamplesCountEquallyInAShortStep) {
  auto text = job_of_gradients();
  const std::string steps = "steps: 31";
  text.replace(text.find(steps), steps.size(), "passes: 0.2");
  const auto lockstep = open_session(text.substr(0, text.find("sync:")), {});
  ASSERT_NE(lockstep->train_samples() / 5 % 24, 0u);
  const auto expected = train(*lockstep);
  // Of such small matrices powersgd sends all.
  const auto w = train(*open_session(text, {"sync.strategy=powersgd"}));
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 1e-5);
}

TEST(Periodic, WeightsThatAreNotFiniteAreNotCommittedByStrategiesThatSendGradients) {
  for (const std::string strategy : {"topk", "threshold", "onebit", "powersgd"}) {
    const auto session = open_session(
        job_of_gradients(), {"sync.strategy=" + strategy, "optimizer.lr=1e40", "steps=3"});
    Result<StepReport> report = session->step();
    while (report.ok() && session->arena().counters().step < session->total_steps()) {
      report = session->step();
    }
    ASSERT_FALSE(report.ok()) << strategy;
    EXPECT_NE(report.error().message().find("finite"), std::string::npos);
    for (const double w : flat(*session)) EXPECT_TRUE(std::isfinite(w)) << strategy;
  }
}

// What has not been sent is rounded with each commit, the optimizer's state is not.
TEST(Periodic, CommitsOfGradientsChangeLittle) {
  for (const std::string strategy : {"topk", "threshold", "onebit"}) {
    const auto expected = train(*open_session(job_of_gradients(), {"sync.strategy=" + strategy}));
    const auto session =
        open_session(job_of_gradients(), {"sync.strategy=" + strategy, "sync.rounds=4"});
    const auto w = train(*session);
    for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 0.2) << strategy;
    EXPECT_NE(w, expected);
  }
  const auto whole = train(*open_session(job_of_gradients(), {"sync.strategy=powersgd"}));
  const auto parts =
      train(*open_session(job_of_gradients(), {"sync.strategy=powersgd", "sync.rounds=4"}));
  // Nothing is left of what is sent as it is; but a replica's scale of fixed point is then that of
  // all.
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(whole[i], parts[i], 1e-6);
}

TEST(Periodic, WithAnOddNumberOneReplicaGossipsWithNobody) {
  const auto session =
      open_session(kJob, {"sync.strategy=gossip", "lanes=6", "sync.replicas=3", "sync.rounds=1"});
  const auto expected = reference_that_keeps(*session, flat(*session));
  expect_near(train(*session), expected);
}

TEST(Periodic, SeveralRoundsAreCommittedAtOnce) {
  for (const std::string strategy : {"gossip", "sparseloco"}) {
    const auto session =
        open_session(kJob, {"sync.strategy=" + strategy, "sync.period=4", "sync.rounds=3"});
    std::vector<int64_t> steps;
    while (session->arena().counters().step < session->total_steps()) {
      const auto report = session->step();
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->samples, static_cast<uint64_t>(24 * report->steps));
      steps.push_back(report->steps);
    }
    EXPECT_EQ(steps, (std::vector<int64_t>{12, 12, 7})) << strategy;
  }
}

// Eight bits of what has not been sent yet are enough.
TEST(Periodic, CommitsOfSparselocoChangeLittle) {
  // Without momentum, which would begin anew with each commit.
  const std::vector<std::string> often = {"sync.strategy=sparseloco", "sync.keep=3072",
                                          "optimizer.momentum=0", "sync.rounds=1"};
  auto keeping = often;
  keeping.back() = "sync.rounds=8";
  const auto expected = train(*open_session(kJob, keeping));
  const auto w = train(*open_session(kJob, often));
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 0.05);
  EXPECT_NE(w, expected);
}

TEST(Periodic, ARoundIsCommittedAtOnceAndTheLastOneMayBeShort) {
  const auto session = open_session(kJob, {});
  std::vector<int64_t> steps;
  while (session->arena().counters().step < session->total_steps()) {
    const auto report = session->step();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->samples, static_cast<uint64_t>(24 * report->steps));
    EXPECT_GT(report->loss, 0);
    steps.push_back(report->steps);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{7, 7, 7, 7, 3}));
  EXPECT_EQ(session->last_step().steps, 3);
}

// With one replica and plain averaging there is nothing but lockstep, except that its weights go
// through fixed point once in a round.
TEST(Periodic, OneReplicaThatKeepsItsStateIsLockstep) {
  const std::string text = kJob;
  const auto lockstep = open_session(text.substr(0, text.find("sync:")), {});
  const auto expected = train(*lockstep);
  const auto session = open_session(kJob, {"sync.replicas=1", "sync.inner_state=average"});
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 1e-5);
}

TEST(Periodic, ChangesOfFewBitsTrainAsWell) {
  const auto exact = open_session(kJob, {"sync.strategy=diloco"});
  const auto expected = train(*exact);
  const auto session = open_session(kJob, {"sync.strategy=diloco", "sync.bits=8"});
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 0.1);
  EXPECT_NE(w, expected);
}

TEST(Periodic, AGradientThatIsNotFiniteEndsTheJobOrIsSkippedInItsReplica) {
  std::string poisoned = kJob;
  const std::string points = "format: points";
  poisoned.insert(poisoned.find(points) + points.size(), ", args: { poison: 30 }");
  for (const std::string strategy : {"average", "easgd", "gossip", "sparseloco", "streaming",
                                     "desloc", "sparta", "local-then-lockstep"}) {
    std::vector<std::string> sets = {"sync.strategy=" + strategy};
    if (strategy == "streaming") sets.emplace_back("sync.fragments=7");
    if (strategy == "local-then-lockstep") sets.emplace_back("sync.local=0");  // only lockstep
    const auto session = open_session(poisoned, sets);
    Result<StepReport> report = session->step();
    while (report.ok()) report = session->step();
    EXPECT_NE(report.error().message().find("sample 30 of data.train"), std::string::npos)
        << strategy << ": " << report.error().message();
    sets.emplace_back("not_finite=skip");
    const auto skipping = open_session(poisoned, sets);
    for (const double w : train(*skipping)) EXPECT_TRUE(std::isfinite(w)) << strategy;
  }
  poisoned.erase(poisoned.find(", period: 7"), std::string(", period: 7").size());
  for (const std::string strategy : {"topk", "threshold", "onebit", "powersgd"}) {
    const auto session = open_session(poisoned, {"sync.strategy=" + strategy});
    Result<StepReport> report = session->step();
    while (report.ok()) report = session->step();
    EXPECT_NE(report.error().message().find("sample 30 of data.train"), std::string::npos)
        << strategy << ": " << report.error().message();
  }
}

TEST(Periodic, WeightsThatAreNotFiniteEndTheJob) {
  for (const std::string strategy : {"average", "gossip", "sparseloco", "desloc", "sparta"}) {
    const auto session =
        open_session(kJob, {"sync.strategy=" + strategy, "optimizer.lr=1e38", "not_finite=skip"});
    Result<StepReport> report = session->step();
    while (report.ok() && session->arena().counters().step < session->total_steps()) {
      report = session->step();
    }
    ASSERT_FALSE(report.ok()) << strategy;
    EXPECT_NE(report.error().message().find("are not finite at the end of the round"),
              std::string::npos)
        << strategy << ": " << report.error().message();
  }
}

}  // namespace
}  // namespace muster::train
