// Periodic strategies against a reference in double precision that knows nothing of arenas, fixed
// point or workers; and what is special about rounds.
#include "muster/train/step/periodic.h"

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/data/order.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {
namespace {

constexpr size_t kInputs = 4;
constexpr size_t kClasses = 2;
constexpr size_t kMatrix = kInputs * kClasses;
constexpr size_t kWeights = kMatrix + kClasses;
using Vector = std::array<double, kWeights>;  // the matrix, row by row, then the bias

// Softmax regression on some samples: the gradient of the mean cross entropy.
Vector gradient(const Vector& w, const data::Dataset& dataset, std::span<const uint64_t> samples) {
  Vector g{};
  for (const uint64_t sample : samples) {
    std::array<float, kInputs> x{};
    int64_t target = 0;
    dataset.read(sample, reinterpret_cast<std::byte*>(x.data()),
                 reinterpret_cast<std::byte*>(&target));
    std::array<double, kClasses> p{};
    double all = 0;
    for (size_t c = 0; c < kClasses; ++c) {
      double z = w[kMatrix + c];
      for (size_t i = 0; i < kInputs; ++i) z += w[c * kInputs + i] * x[i];
      p[c] = std::exp(z);
      all += p[c];
    }
    for (size_t c = 0; c < kClasses; ++c) {
      const double wanted = c == static_cast<size_t>(target) ? 1 : 0;
      const double d = (p[c] / all - wanted) / static_cast<double>(samples.size());
      for (size_t i = 0; i < kInputs; ++i) g[c * kInputs + i] += d * x[i];
      g[kMatrix + c] += d;
    }
  }
  return g;
}

struct Inner {
  Vector w{};
  Vector m{};
  Vector v{};
};

// One step of the job's optimizer, as torch.optim has it. `t`: steps before this one.
void step(Inner& r, const Vector& g, const config::OptimizerOptions& o, int64_t t) {
  for (size_t i = 0; i < kWeights; ++i) {
    if (o.kind == "sgd") {
      r.m[i] = o.momentum * r.m[i] + g[i];
      r.w[i] -= o.lr * r.m[i];
    } else {
      r.m[i] = o.beta1 * r.m[i] + (1 - o.beta1) * g[i];
      r.v[i] = o.beta2 * r.v[i] + (1 - o.beta2) * g[i] * g[i];
      const double m = r.m[i] / (1 - std::pow(o.beta1, static_cast<double>(t + 1)));
      const double v = r.v[i] / (1 - std::pow(o.beta2, static_cast<double>(t + 1)));
      r.w[i] -= o.lr * m / (std::sqrt(v) + o.eps);
    }
  }
}

Vector flat(Session& session) {
  Vector w{};
  size_t weight = 0;
  size_t bias = 0;
  for (size_t t = 0; t < session.arena().tensors().size(); ++t) {
    const auto values = session.arena().tensor(t);
    (values.size() == kClasses ? bias : weight) = t;
  }
  std::ranges::copy(session.arena().tensor(weight), w.begin());
  std::ranges::copy(session.arena().tensor(bias), w.begin() + ptrdiff_t{kMatrix});
  return w;
}

// The whole job, as the papers have it.
Vector reference(Session& session, const Vector& initial) {
  const auto& job = session.job();
  const auto& sync = job.sync;
  const auto plan = session.batches();
  const data::Order order(job.seed, session.train_samples());
  const auto each = job.lanes / sync.replicas;
  const bool keeps = sync.inner_state == "average";
  Inner shared{.w = initial};
  Vector outer{};
  std::vector<Vector> own(static_cast<size_t>(sync.replicas), initial);  // of easgd
  for (int64_t begin = 0; begin < session.total_steps(); begin += sync.period) {
    const int64_t end = std::min(begin + sync.period, session.total_steps());
    Inner sum;
    for (int64_t r = 0; r < sync.replicas; ++r) {
      Inner mine{.w = shared.w};
      if (keeps) mine = shared;
      if (sync.strategy == "easgd") mine.w = own[static_cast<size_t>(r)];
      for (int64_t s = begin; s < end; ++s) {
        std::vector<uint64_t> samples;
        for (int64_t lane = r * each; lane < (r + 1) * each; ++lane) {
          const auto slice =
              data::lane_slice(plan, static_cast<uint64_t>(s), static_cast<uint64_t>(lane));
          for (uint64_t i = 0; i < slice.count; ++i) {
            samples.push_back(order.at_stream(slice.first + i));
          }
        }
        step(mine, gradient(mine.w, session.train_data(), samples), job.optimizer,
             keeps ? s : s - begin);
      }
      for (size_t i = 0; i < kWeights; ++i) {
        sum.w[i] += mine.w[i] / static_cast<double>(sync.replicas);
        sum.m[i] += mine.m[i] / static_cast<double>(sync.replicas);
        sum.v[i] += mine.v[i] / static_cast<double>(sync.replicas);
      }
      own[static_cast<size_t>(r)] = mine.w;
    }
    for (size_t i = 0; i < kWeights; ++i) {
      const double change = sum.w[i] - shared.w[i];
      if (sync.strategy == "average") {
        shared.w[i] = sum.w[i];
      } else if (sync.strategy == "bmuf") {  // Chen and Huo: block momentum, block learning rate 1
        outer[i] = (1 - 1.0 / static_cast<double>(sync.replicas)) * outer[i] + change;
        shared.w[i] += outer[i];
      } else if (sync.strategy == "easgd") {  // Zhang et al., with the rate 0.9 / R
        double centre = shared.w[i];
        for (Vector& w : own) {
          const double drawn = 0.9 / static_cast<double>(sync.replicas) * (w[i] - shared.w[i]);
          w[i] -= drawn;
          centre += drawn;
        }
        shared.w[i] = centre;
      } else {  // Douillard et al.: Nesterov momentum
        outer[i] = 0.9 * outer[i] - change;
        shared.w[i] -= 0.7 * (0.9 * outer[i] - change);
      }
    }
    shared.m = sum.m;
    shared.v = sum.v;
  }
  return shared.w;
}

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

class PeriodicTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(PeriodicTest, FollowsItsFormula) {
  const auto& [strategy, optimizer, state] = GetParam();
  std::vector<std::string> sets = {"sync.strategy=" + strategy, "sync.inner_state=" + state};
  if (optimizer == "adam") {
    sets.insert(sets.end(), {"optimizer.kind=adam", "optimizer.lr=0.05"});
    sets.emplace_back("optimizer.momentum=0");
  }
  const auto session = open_session(kJob, sets);
  const auto expected = reference(*session, flat(*session));
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 2e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Rows, PeriodicTest,
                         ::testing::Combine(::testing::Values("average", "bmuf", "diloco", "easgd"),
                                            ::testing::Values("sgd", "adam"),
                                            ::testing::Values("reset", "average")),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

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
  const auto session = open_session(poisoned, {});
  Result<StepReport> report = session->step();
  while (report.ok()) report = session->step();
  EXPECT_NE(report.error().message().find("sample 30 of data.train"), std::string::npos)
      << report.error().message();
  const auto skipping = open_session(poisoned, {"not_finite=skip"});
  for (const double w : train(*skipping)) EXPECT_TRUE(std::isfinite(w));
}

}  // namespace
}  // namespace muster::train
