// What becomes of the scales of fixed-point sums over a run: a spike, and what is left of the
// gradients after it.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "muster/data/order.h"
#include "muster/exact/fixed_point.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

const char* const kJob = R"(
model: { layers: [ linear: { out: 2 } ] }
data: { train: { format: points } }
batch: 20
lanes: 4
steps: 60
optimizer: { kind: sgd, lr: 0.01, clip: { norm: 1.0 } }
)";

// Steps in which the weights of the layer did not change at all, after `from`.
int idle_steps(Session& session, int64_t from) {
  int idle = 0;
  std::vector<float> before;
  for (int64_t step = 0; step < session.total_steps(); ++step) {
    const auto weights = session.arena().tensor(0);
    before.assign(weights.begin(), weights.end());
    const auto report = session.step();
    EXPECT_TRUE(report.ok()) << report.error().message();
    if (step >= from && std::equal(before.begin(), before.end(), weights.begin())) ++idle;
  }
  return idle;
}

TEST(Scales, ASpikeOfTwoToTheThirtyDoesNotStopLearning) {
  // The first sample of step 5: its values, and so the gradients, are 2^30 times as large.
  const auto spike = data::Order(make_job(kJob).seed, 2000).at_stream(100);
  const auto session =
      open_session(kJob, {fmt::format("data.train.args={{size: 2000, spike: {}}}", spike)});
  EXPECT_LE(idle_steps(*session, 6), 1);
}

TEST(Scales, TheReportSaysHowManyBitsTheGradientsWereLeftWith) {
  const auto spike = data::Order(make_job(kJob).seed, 2000).at_stream(100);
  const auto session =
      open_session(kJob, {fmt::format("data.train.args={{size: 2000, spike: {}}}", spike)});
  std::vector<int64_t> bits;
  for (int step = 0; step < 10; ++step) bits.push_back(session->step()->gradient_bits);
  // 4 lanes have 28 bits each, less the 3 spare ones.
  EXPECT_EQ(bits[0], 25);
  EXPECT_EQ(bits[6], 0);  // after the spike
  EXPECT_GE(bits[7], exact::kLeastBits - 1);
  const auto& counters = session->arena().counters();
  EXPECT_EQ(counters.fewest_gradient_bits, 0);
  EXPECT_EQ(counters.last.gradient_bits, bits.back());
  EXPECT_EQ(session->last_step().gradient_bits, bits.back());
}

TEST(Scales, NativeSumsHaveNoSuchBits) {
  const auto session = open_session(kJob, {"sync.reduction=native"});
  EXPECT_EQ(session->step()->gradient_bits, -1);
  EXPECT_EQ(session->arena().counters().fewest_gradient_bits, -1);
}

}  // namespace
}  // namespace muster::train
