// Elastic averaging through servers against a reference in double precision. One worker takes the
// tasks in their order, so that is known.
#include "muster/train/step/easgd_task.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/train/jobs_testing.h"
#include "muster/train/step/periodic_testing.h"

namespace muster::train {
namespace {

// The last step has 6 samples: 5 in lane 0, 1 in lane 1.
const char* const kJob = R"(
model: { layers: [{ linear: { out: 2 } }] }
data: { train: { format: points, args: { size: 200 } } }
batch: 22
lanes: 4
passes: 3
optimizer: { kind: sgd, lr: 0.3 }
sync: { strategy: server, mode: easgd, period: 36 }
tables: { shards: 5 }
)";

// Algorithms 1 and 2 of Zhang et al., with tau = sync.fetch, and replicas that take turns.
Vector elastic_reference(Session& session, const Vector& initial, double beta) {
  const auto& job = session.job();
  const double alpha = beta / static_cast<double>(job.lanes);
  const double delta = job.optimizer.momentum;
  Vector center = initial;
  std::vector<Vector> own(static_cast<size_t>(job.lanes), initial);
  std::vector<Vector> velocity(own.size());
  for (int64_t begin = 0; begin < session.total_steps(); begin += job.sync.fetch) {
    for (size_t r = 0; r < own.size(); ++r) {
      for (int64_t s = begin; s < begin + job.sync.fetch; ++s) {
        const auto samples = samples_of(session, static_cast<int64_t>(r), s);
        if (samples.empty()) break;
        const Vector x = own[r];
        Vector at = x;
        for (size_t i = 0; i < kWeights; ++i) at[i] += delta * velocity[r][i];
        Vector g = gradient(at, session.train_data(), samples);
        const double most = job.optimizer.clip.value;
        for (double& value : g) value = most > 0 ? std::clamp(value, -most, most) : value;
        for (size_t i = 0; i < kWeights; ++i) {
          if (s == begin) {
            own[r][i] -= alpha * (x[i] - center[i]);
            center[i] += alpha * (x[i] - center[i]);
          }
          velocity[r][i] = delta * velocity[r][i] - job.optimizer.lr * g[i];
          own[r][i] += velocity[r][i];
        }
      }
    }
  }
  return center;
}

std::unique_ptr<Session> begin_job(const std::vector<std::string>& sets) {
  auto session = open_session(kJob, sets);
  EXPECT_TRUE(session->rows()->load({}, 0).ok());
  return session;
}

void train(Session& session) {
  while (session.arena().counters().step < session.total_steps()) {
    const auto report = session.step();
    ASSERT_TRUE(report.ok()) << report.error().message();
  }
}

struct Setting {
  const char* name;
  std::vector<std::string> sets;
  double beta = 0.9;
};

class EasgdTest : public ::testing::TestWithParam<Setting> {};

TEST_P(EasgdTest, FollowsThePaper) {
  const auto& [name, sets, beta] = GetParam();
  const auto session = begin_job(sets);
  const Vector initial = flat(*session);
  const Vector expected = elastic_reference(*session, initial, beta);
  train(*session);
  const Vector w = flat(*session);
  double moved = 0;
  for (size_t i = 0; i < kWeights; ++i) {
    EXPECT_NEAR(w[i], expected[i], 1e-5) << i;
    moved = std::max(moved, std::abs(w[i] - initial[i]));
  }
  EXPECT_GT(moved, 0.05);
  EXPECT_EQ(session->arena().counters().step, 28);
  EXPECT_EQ(session->arena().counters().samples, 600U) << "each sample of each pass, once";
}

const std::vector<std::string> kMomentum = {"sync.fetch=4", "optimizer.lr=0.05",
                                            "optimizer.momentum=0.9", "optimizer.nesterov=true"};

INSTANTIATE_TEST_SUITE_P(
    Settings, EasgdTest,
    ::testing::Values(Setting{"each_step", {}}, Setting{"four_steps", {"sync.fetch=4"}},
                      // In the last task lanes 2 and 3 have no samples, and nothing moves.
                      Setting{"short_task", {"sync.fetch=9"}},
                      Setting{"rate", {"sync.fetch=4", "sync.outer.lr=0.4"}, 0.4},
                      Setting{"short_rounds", {"sync.fetch=2", "sync.period=4"}},
                      Setting{"clipped", {"optimizer.clip.value=0.1"}},
                      Setting{"momentum", kMomentum}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(EasgdTask, WithoutAMovingRateTheCenterStays) {
  const auto session = begin_job({"sync.outer.lr=0", "sync.period=4"});
  const Vector initial = flat(*session);
  train(*session);
  EXPECT_EQ(flat(*session), initial);
  EXPECT_LT(session->last_step().loss, 0.5) << "the replicas learn";
}

TEST(EasgdTask, WeightsThatAreNotFiniteAreNotPushed) {
  const auto session = begin_job({"optimizer.lr=1e39"});  // more than a float holds
  const auto report = session->step();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message().find("the weights of this replica are not finite"),
            std::string::npos)
      << report.error().message();
}

// A task that had fewer steps than it would have now is done.
TEST(EasgdTask, AJobThatEndedWithinATaskCannotGoOn) {
  const auto session = begin_job({"sync.fetch=9"});
  train(*session);
  const auto more = session->step();
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message().find("the job has ended after 28 steps"), std::string::npos)
      << more.error().message();
}

}  // namespace
}  // namespace muster::train
