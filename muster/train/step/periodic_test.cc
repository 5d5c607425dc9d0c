// Periodic strategies against a reference in double precision that knows nothing of arenas, fixed
// point or workers; and what is special about rounds.
#include "muster/train/step/periodic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/data/order.h"
#include "muster/sync/block_code.h"
#include "muster/sync/recipe.h"
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

// Of a replica in one step.
std::vector<uint64_t> samples_of(Session& session, int64_t replica, int64_t step) {
  const auto& job = session.job();
  const auto each = job.lanes / job.sync.replicas;
  const data::Order order(job.seed, session.train_samples());
  std::vector<uint64_t> samples;
  for (int64_t lane = replica * each; lane < (replica + 1) * each; ++lane) {
    const auto slice = data::lane_slice(session.batches(), static_cast<uint64_t>(step),
                                        static_cast<uint64_t>(lane));
    for (uint64_t i = 0; i < slice.count; ++i) {
      samples.push_back(order.at_stream(slice.first + i));
    }
  }
  return samples;
}

// The whole job, as the papers have it.
Vector reference(Session& session, const Vector& initial) {
  const auto& job = session.job();
  const auto& sync = job.sync;
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
        step(mine, gradient(mine.w, session.train_data(), samples_of(session, r, s)), job.optimizer,
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

// What a commit does to the optimizer's state of all replicas: its mean, or zeros.
void settle_states(std::vector<Inner>& own, bool averages) {
  Inner mean;
  for (const Inner& r : own) {
    for (size_t i = 0; averages && i < kWeights; ++i) {
      mean.m[i] += r.m[i] / static_cast<double>(own.size());
      mean.v[i] += r.v[i] / static_cast<double>(own.size());
    }
  }
  for (Inner& r : own) r = {.w = r.w, .m = mean.m, .v = mean.v};
}

// What is sent of a tensor's values, as sync/sparse_code.h describes it: the largest ones, each as
// the mean of its bin. The others are 0.
void send_largest(std::span<const double> values, int64_t keep, std::span<double> sent) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const double x = std::abs(values[a]);
    const double y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  });
  const auto share =
      std::lround(static_cast<double>(values.size()) * static_cast<double>(keep) / 4096);
  order.resize(static_cast<size_t>(std::max(share, 1L)));
  double mean = 0;
  double variance = 0;
  const auto count = static_cast<double>(order.size());
  for (const size_t i : order) mean += values[i] / count;
  for (const size_t i : order) variance += (values[i] - mean) * (values[i] - mean) / count;
  const auto bin = [&](size_t i) {
    const double border = 1.5 * std::sqrt(variance);
    const double away = values[i] - mean;
    return away < -border ? 0 : away < 0 ? 1 : away < border ? 2 : 3;
  };
  for (const size_t i : order) {
    double sum = 0;
    double members = 0;
    for (const size_t other : order) {
      if (bin(other) != bin(i)) continue;
      sum += values[other];
      members += 1;
    }
    sent[i] = sum / members;
  }
}

// The same for the strategies whose replicas keep something between rounds. What they keep is exact
// here; with the real ones it is rounded when it is committed.
Vector reference_that_keeps(Session& session, const Vector& initial) {
  const auto& job = session.job();
  const auto& sync = job.sync;
  const auto replicas = static_cast<size_t>(sync.replicas);
  const int64_t committed = sync.period * sync.rounds;
  const bool averages = sync.inner_state == "average";
  std::vector<Inner> own(replicas, Inner{.w = initial});
  std::vector<Vector> slow(replicas, initial);  // of gossip
  std::vector<Vector> kept(replicas);           // errors, or momentum
  Vector w = initial;
  for (int64_t begin = 0; begin < session.total_steps(); begin += sync.period) {
    const int64_t end = std::min(begin + sync.period, session.total_steps());
    if (begin % committed == 0) settle_states(own, averages);
    for (size_t r = 0; r < replicas; ++r) {
      own[r].w = sync.strategy == "gossip" ? slow[r] : w;
      for (int64_t s = begin; s < end; ++s) {
        const auto samples = samples_of(session, static_cast<int64_t>(r), s);
        step(own[r], gradient(own[r].w, session.train_data(), samples), job.optimizer,
             averages ? s : s - begin / committed * committed);
      }
    }
    if (sync.strategy == "gossip") {
      const auto before = slow;
      const auto change = [&](int r, size_t i) {
        return own[static_cast<size_t>(r)].w[i] - before[static_cast<size_t>(r)][i];
      };
      for (const auto& [a, b] :
           sync::pairs_of(job.seed, begin / sync.period, static_cast<int>(replicas))) {
        const std::vector<int> both = a == b ? std::vector{a} : std::vector{a, b};
        for (const int r : both) {
          const auto at = static_cast<size_t>(r);
          for (size_t i = 0; i < kWeights; ++i) {
            const double mean =
                (before[static_cast<size_t>(a)][i] + before[static_cast<size_t>(b)][i]) / 2;
            const double step = 0.7 * ((change(a, i) + change(b, i)) / 2 + mean - before[at][i]);
            kept[at][i] = 0.5 * kept[at][i] + step;
            slow[at][i] = before[at][i] + kept[at][i];
          }
        }
      }
      w = {};
      for (const Vector& r : slow) {
        for (size_t i = 0; i < kWeights; ++i) w[i] += r[i] / static_cast<double>(replicas);
      }
      continue;
    }
    std::vector<Vector> sent(replicas);
    for (size_t r = 0; r < replicas; ++r) {
      for (size_t i = 0; i < kWeights; ++i) kept[r][i] = 0.95 * kept[r][i] + w[i] - own[r].w[i];
      send_largest(std::span(kept[r]).first(kMatrix), sync.keep, std::span(sent[r]).first(kMatrix));
      send_largest(std::span(kept[r]).subspan(kMatrix), sync.keep,
                   std::span(sent[r]).subspan(kMatrix));
      for (size_t i = 0; i < kWeights; ++i) kept[r][i] -= sent[r][i];
    }
    for (size_t i = 0; i < kWeights; ++i) {
      double sum = 0;
      double senders = 0;
      for (const Vector& s : sent) {
        sum += s[i];
        senders += s[i] != 0 ? 1 : 0;
      }
      if (senders > 0) w[i] -= sum / senders;
    }
  }
  return w;
}

// Streaming diloco: the weights in two halves, of which each is the smaller tensor or the larger
// one, as blocks are not divided.
Vector reference_of_streaming(Session& session, const Vector& initial) {
  const auto& job = session.job();
  const auto& sync = job.sync;
  const auto replicas = static_cast<size_t>(sync.replicas);
  const bool averages = sync.inner_state == "average";
  const int64_t segment = sync.period / sync.fragments;
  const int64_t committed = sync.period * sync.rounds;
  std::vector<Inner> own(replicas, Inner{.w = initial});
  Vector w = initial;
  Vector momentum{};
  // The bias is the first tensor that the arena has, or the second.
  const bool bias_first = session.arena().tensor(0).size() == kClasses;
  const auto is_in = [&](size_t i, int64_t fragment) {
    return (i >= kMatrix) == (bias_first == (fragment == 0));
  };
  Vector under_way{};  // D
  int64_t fragment = -1;
  const auto arrive = [&] {
    for (size_t i = 0; fragment >= 0 && i < kWeights; ++i) {
      if (!is_in(i, fragment)) continue;
      momentum[i] = 0.9 * momentum[i] + under_way[i];
      w[i] -= 0.7 * (under_way[i] + 0.9 * momentum[i]);
      for (Inner& r : own) r.w[i] = sync.blend * r.w[i] + (1 - sync.blend) * w[i];
    }
    fragment = -1;
  };
  for (int64_t begin = 0; begin < session.total_steps(); begin += segment) {
    const int64_t end = std::min(begin + segment, session.total_steps());
    if (begin % committed == 0) settle_states(own, averages);
    for (size_t r = 0; r < replicas; ++r) {
      for (int64_t s = begin; s < end; ++s) {
        const auto samples = samples_of(session, static_cast<int64_t>(r), s);
        step(own[r], gradient(own[r].w, session.train_data(), samples), job.optimizer,
             averages ? s : s - begin / committed * committed);
      }
    }
    arrive();
    if (end == session.total_steps()) {
      w = {};
      for (const Inner& r : own) {
        for (size_t i = 0; i < kWeights; ++i) w[i] += r.w[i] / static_cast<double>(replicas);
      }
      break;
    }
    fragment = begin / segment % sync.fragments;
    under_way = {};
    for (const Inner& r : own) {
      for (size_t i = 0; i < kWeights; ++i) {
        under_way[i] += (w[i] - r.w[i]) / static_cast<double>(replicas);
      }
    }
    if (end % committed == 0) arrive();
  }
  return w;
}

// What is sent of a tensor's values (sync/block_code.h, which has its own test).
void send_coded(const sync::BlockCode& code, std::span<const double> values,
                std::span<double> sent) {
  std::vector<float> rest(values.begin(), values.end());
  std::vector<std::byte> bytes;
  code.encode(rest, bytes);
  std::vector<float> sum(rest.size());
  EXPECT_TRUE(code.add(bytes, sum));
  std::ranges::copy(sum, sent.begin());
}

// The same for the strategies that send gradients, all in one commit.
Vector reference_of_gradients(Session& session, const Vector& initial) {
  const auto& job = session.job();
  const auto replicas = static_cast<size_t>(job.sync.replicas);
  const auto code = sync::make_block_code(job.sync);
  std::vector<Vector> errors(replicas);
  Inner shared{.w = initial};
  for (int64_t s = 0; s < session.total_steps(); ++s) {
    Vector mean{};
    for (size_t r = 0; r < replicas; ++r) {
      const auto g =
          gradient(shared.w, session.train_data(), samples_of(session, static_cast<int64_t>(r), s));
      Vector sent{};
      for (size_t i = 0; i < kWeights; ++i) errors[r][i] += g[i];
      // Without a code, as powersgd has for such small matrices: all of it.
      if (code == nullptr) {
        sent = errors[r];
      } else {
        send_coded(*code, std::span(errors[r]).first(kMatrix), std::span(sent).first(kMatrix));
        send_coded(*code, std::span(errors[r]).subspan(kMatrix), std::span(sent).subspan(kMatrix));
      }
      for (size_t i = 0; i < kWeights; ++i) {
        errors[r][i] -= sent[i];
        mean[i] += sent[i] / static_cast<double>(replicas);
      }
    }
    step(shared, mean, job.optimizer, s);
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
  if (optimizer == "adam") {
    sets.insert(sets.end(), {"optimizer.kind=adam", "optimizer.lr=0.05"});
    sets.emplace_back("optimizer.momentum=0");
  }
  const auto session = open_session(kJob, sets);
  const auto expected = reference_that_keeps(*session, flat(*session));
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 2e-5) << i;
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
  if (optimizer == "adam") {
    sets.insert(sets.end(), {"optimizer.kind=adam", "optimizer.lr=0.05"});
    sets.emplace_back("optimizer.momentum=0");
  }
  const auto session = open_session(kJob, sets);
  const auto expected = reference_of_streaming(*session, flat(*session));
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 2e-5) << i;
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
  if (optimizer == "adam") {
    sets.insert(sets.end(), {"optimizer.kind=adam", "optimizer.lr=0.05"});
    sets.emplace_back("optimizer.momentum=0");
  }
  const auto session = open_session(job_of_gradients(), sets);
  const auto expected = reference_of_gradients(*session, flat(*session));
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 2e-5) << i;
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
  const auto w = train(*session);
  for (size_t i = 0; i < kWeights; ++i) EXPECT_NEAR(w[i], expected[i], 2e-5) << i;
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
  for (const std::string strategy : {"average", "easgd", "gossip", "sparseloco", "streaming"}) {
    std::vector<std::string> sets = {"sync.strategy=" + strategy};
    if (strategy == "streaming") sets.emplace_back("sync.fragments=7");
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
  for (const std::string strategy : {"average", "gossip", "sparseloco"}) {
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
