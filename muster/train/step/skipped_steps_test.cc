// Steps without an update (`not_finite: skip`), and what counts as not finite.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/data/order.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

const char* const kJob = R"(
model: { layers: [ linear: { out: 16 }, relu, linear: { out: 2 } ] }
data: { train: { format: points } }
batch: 20
lanes: 4
steps: 30
optimizer: { kind: adam, lr: 0.01 }
not_finite: skip
)";

// The job with a NaN in the batch of this step, and in no other of the first pass.
std::unique_ptr<Session> poisoned(uint64_t step, std::vector<std::string> sets = {}) {
  const auto sample = data::Order(make_job(kJob).seed, 200).at_stream(step * 20);
  sets.push_back(fmt::format("data.train.args={{poison: {}}}", sample));
  return open_session(kJob, sets);
}

TEST(SkippedSteps, DoNotCountInTheBiasCorrectionOfAdam) {
  const auto session = poisoned(0);
  ASSERT_TRUE(session->step()->skipped);
  const auto weights = session->arena().weights();
  const std::vector<float> before(weights.begin(), weights.end());
  ASSERT_FALSE(session->step()->skipped);
  // The first update of Adam moves every weight that has a gradient by the learning rate.
  float most = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    most = std::max(most, std::abs(weights[i] - before[i]));
  }
  EXPECT_NEAR(most, 0.01, 0.0001);
}

TEST(SkippedSteps, AFirstStepThatIsSkippedLeavesTheScalesToTheNext) {
  const auto session = poisoned(0);
  ASSERT_TRUE(session->step()->skipped);
  ASSERT_TRUE(session->step().ok());
  EXPECT_EQ(session->arena().counters().redone, 0U);
  EXPECT_EQ(std::ranges::count(session->arena().exponents(), 0), 0);
}

// Exactly as if the dry pass had not been needed: same bits with any number of threads.
TEST(SkippedSteps, GiveTheSameBitsOnAnyThreads) {
  std::vector<std::string> hashes;
  for (const char* threads : {"threads=1", "threads=3"}) {
    const auto session = poisoned(0, {threads});
    for (int i = 0; i < 9; ++i) ASSERT_TRUE(session->step().ok());
    EXPECT_EQ(session->arena().counters().skipped, 1U);
    hashes.push_back(session->arena().weights_hash().hex());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(NotFinite, ALossThatIsNotFiniteIsNoticedThoughItsGradientsAreFinite) {
  const auto session = open_session(kJob, {"model.loss=endless", "not_finite=stop"});
  const auto report = session->step();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().kind(), ErrorKind::kNumerics);
  EXPECT_THAT(report.error().message(), HasSubstr("step 0, lane 0: the loss is not finite"));
  const auto skipping = open_session(kJob, {"model.loss=endless"});
  EXPECT_TRUE(skipping->step()->skipped);
}

TEST(Schedule, IsCheckedBeforeTraining) {
  auto job = make_job(kJob);
  job.optimizer.schedule.kind = "cosine";
  job.optimizer.schedule.warmup = 10;
  job.optimizer.schedule.steps = 10;
  const auto session = Session::open(job, testing_registries());
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.error().message(), HasSubstr("optimizer.schedule.warmup is 10"));
}

}  // namespace
}  // namespace muster::train
