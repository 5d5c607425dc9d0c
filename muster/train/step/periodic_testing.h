// The strategies of sync/recipe.h in double precision, written down as the papers have them, for a
// model of ten weights: nothing of arenas, fixed point or workers. Tests compare them with the real
// ones.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/base/random.h"
#include "muster/data/order.h"
#include "muster/optim/muon_testing.h"
#include "muster/sync/block_code.h"
#include "muster/sync/recipe.h"
#include "muster/sync/subset.h"
#include "muster/train/jobs_testing.h"

namespace muster::train {

inline constexpr size_t kInputs = 4;
inline constexpr size_t kClasses = 2;
inline constexpr size_t kMatrix = kInputs * kClasses;
inline constexpr size_t kWeights = kMatrix + kClasses;
using Vector = std::array<double, kWeights>;  // the matrix, row by row, then the bias

// Softmax regression on some samples: the gradient of the mean cross entropy.
inline Vector gradient(const Vector& w, const data::Dataset& dataset,
                       std::span<const uint64_t> samples) {
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
inline void step(Inner& r, const Vector& g, const config::OptimizerOptions& o, int64_t t) {
  size_t first = 0;
  if (o.kind == "muon") {  // the matrix; the bias is left to adamw
    std::vector<double> direction(kMatrix);
    for (size_t i = 0; i < kMatrix; ++i) {
      r.m[i] = o.momentum * r.m[i] + (1 - o.momentum) * g[i];
      direction[i] = r.m[i];
    }
    direction = optim::orthogonalized(direction, kInputs);
    for (size_t i = 0; i < kMatrix; ++i) {
      r.w[i] -= o.lr * 0.2 * std::sqrt(static_cast<double>(kInputs)) * direction[i];
    }
    first = kMatrix;
  }
  for (size_t i = first; i < kWeights; ++i) {
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

inline Vector flat(Session& session) {
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
inline std::vector<uint64_t> samples_of(Session& session, int64_t replica, int64_t step) {
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

// By tensor: the mean length of what the replicas changed, in the mean of their directions.
inline Vector radial_mean(const std::vector<Vector>& replicas, const Vector& begin) {
  Vector result{};
  const std::array<std::array<size_t, 2>, 2> tensors = {{{0, kMatrix}, {kMatrix, kWeights}}};
  for (const auto& [first, end] : tensors) {
    double length = 0;
    Vector direction{};
    for (const Vector& w : replicas) {
      double squares = 0;
      for (size_t i = first; i < end; ++i) squares += (w[i] - begin[i]) * (w[i] - begin[i]);
      length += std::sqrt(squares) / static_cast<double>(replicas.size());
      for (size_t i = first; i < end; ++i) direction[i] += (w[i] - begin[i]) / std::sqrt(squares);
    }
    double squares = 0;
    for (size_t i = first; i < end; ++i) squares += direction[i] * direction[i];
    const double least = 1e-3 * static_cast<double>(replicas.size());
    const double divisor = std::max(std::sqrt(squares), least);
    for (size_t i = first; i < end; ++i) result[i] = length * direction[i] / divisor;
  }
  return result;
}

// The whole job, as the papers have it.
inline Vector reference(Session& session, const Vector& initial) {
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
    Vector changes{};
    for (size_t i = 0; i < kWeights; ++i) changes[i] = sum.w[i] - shared.w[i];
    if (sync.merge == "radial") changes = radial_mean(own, shared.w);
    for (size_t i = 0; i < kWeights; ++i) {
      const double change = changes[i];
      if (sync.strategy == "average") {
        shared.w[i] += change;
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
      } else {  // Douillard et al.: Nesterov momentum; Therien et al. have less of it
        const double momentum = sync.strategy == "muloco" ? 0.6 : 0.9;
        outer[i] = momentum * outer[i] - change;
        shared.w[i] -= 0.7 * (momentum * outer[i] - change);
      }
    }
    shared.m = sum.m;
    shared.v = sum.v;
  }
  return shared.w;
}

// What a commit does to the optimizer's state of all replicas: its mean, or zeros.
inline void settle_states(std::vector<Inner>& own, bool averages) {
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
inline void send_largest(std::span<const double> values, int64_t keep, std::span<double> sent) {
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
inline Vector reference_that_keeps(Session& session, const Vector& initial) {
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
inline Vector reference_of_streaming(Session& session, const Vector& initial) {
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
inline void send_coded(const sync::BlockCode& code, std::span<const double> values,
                       std::span<double> sent) {
  std::vector<float> rest(values.begin(), values.end());
  std::vector<std::byte> bytes;
  code.encode(rest, bytes);
  std::vector<float> sum(rest.size());
  EXPECT_TRUE(code.add(bytes, sum));
  std::ranges::copy(sum, sent.begin());
}

// The same for the strategies that send gradients, all in one commit.
inline Vector reference_of_gradients(Session& session, const Vector& initial) {
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

// One round of a replica; the state of its optimizer has been there since step 0.
inline void train_replica(Session& session, size_t r, int64_t begin, int64_t end, Inner& own) {
  for (int64_t s = begin; s < end; ++s) {
    const auto samples = samples_of(session, static_cast<int64_t>(r), s);
    step(own, gradient(own.w, session.train_data(), samples), session.job().optimizer, s);
  }
}

template <Vector Inner::* kPart>
void take_mean(std::vector<Inner>& own, size_t i) {
  double mean = 0;
  for (const Inner& r : own) mean += (r.*kPart)[i] / static_cast<double>(own.size());
  for (Inner& r : own) (r.*kPart)[i] = mean;
}

// Weights after each round, first moments twice in a commit, second ones once.
inline Vector reference_of_desloc(Session& session, const Vector& initial) {
  const auto& sync = session.job().sync;
  std::vector<Inner> own(static_cast<size_t>(sync.replicas), Inner{.w = initial});
  for (int64_t round = 0; round * sync.period < session.total_steps(); ++round) {
    const int64_t begin = round * sync.period;
    const int64_t end = std::min(begin + sync.period, session.total_steps());
    for (size_t r = 0; r < own.size(); ++r) train_replica(session, r, begin, end, own[r]);
    for (size_t i = 0; i < kWeights; ++i) {
      take_mean<&Inner::w>(own, i);
      if ((round + 1) % (sync.rounds / 2) == 0) take_mean<&Inner::m>(own, i);
      if ((round + 1) % sync.rounds == 0) take_mean<&Inner::v>(own, i);
    }
  }
  return own[0].w;
}

// Some weights after each round, which subset_test.cc has more about.
inline Vector reference_of_sparta(Session& session, const Vector& initial) {
  const auto& job = session.job();
  std::vector<Inner> own(static_cast<size_t>(job.sync.replicas), Inner{.w = initial});
  const bool bias_first = session.arena().tensor(0).size() == kClasses;
  for (int64_t round = 0; round * job.sync.period < session.total_steps(); ++round) {
    const int64_t begin = round * job.sync.period;
    const int64_t end = std::min(begin + job.sync.period, session.total_steps());
    for (size_t r = 0; r < own.size(); ++r) train_replica(session, r, begin, end, own[r]);
    for (const bool bias : {false, true}) {
      const size_t size = bias ? kClasses : kMatrix;
      std::vector<uint16_t> places(sync::share_of(size, job.sync.keep));
      const uint64_t block = bias == bias_first ? 0 : 1;
      sync::draw_subset(
          RandomStream(job.seed, Purpose::kSubset, static_cast<uint64_t>(round), block), size,
          places);
      for (const size_t place : places) take_mean<&Inner::w>(own, (bias ? kMatrix : 0) + place);
    }
    if ((round + 1) % job.sync.rounds == 0) settle_states(own, true);
  }
  for (size_t i = 0; i < kWeights; ++i) take_mean<&Inner::w>(own, i);
  return own[0].w;
}

// Averages weights and states after each round, up to a step; then all take the mean gradient.
inline Vector reference_of_local_then_lockstep(Session& session, const Vector& initial) {
  const auto& job = session.job();
  std::vector<Inner> own(static_cast<size_t>(job.sync.replicas), Inner{.w = initial});
  const int64_t total = session.total_steps();
  const int64_t local = std::llround(job.sync.local * static_cast<double>(total));
  for (int64_t begin = 0; begin < local; begin += job.sync.period) {
    const int64_t end = std::min(begin + job.sync.period, local);
    for (size_t r = 0; r < own.size(); ++r) train_replica(session, r, begin, end, own[r]);
    for (size_t i = 0; i < kWeights; ++i) take_mean<&Inner::w>(own, i);
    settle_states(own, true);
  }
  Inner shared = own[0];
  for (int64_t s = local; s < total; ++s) {
    Vector mean{};
    for (size_t r = 0; r < own.size(); ++r) {
      const auto samples = samples_of(session, static_cast<int64_t>(r), s);
      const auto g = gradient(shared.w, session.train_data(), samples);
      for (size_t i = 0; i < kWeights; ++i) mean[i] += g[i] / static_cast<double>(own.size());
    }
    step(shared, mean, job.optimizer, s);
  }
  return shared.w;
}

}  // namespace muster::train
