#include "muster/train/step/gradient_rounds.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "muster/base/hash.h"
#include "muster/optim/schedule.h"
#include "muster/sync/recipe.h"

namespace muster::train {
namespace {

constexpr size_t kGrain = 16;  // blocks for a thread at a time

}  // namespace

GradientRounds::GradientRounds(const config::Job& job, const StrategyParts& parts,
                               size_t first_kept)
    : job_(job),
      parts_(parts),
      first_kept_(first_kept),
      size_(parts.arena->layout().block_elements()),
      statistics_begin_(parts.arena->statistics_begin()),
      compressor_(make_compressor(job, parts)),
      share_(1.0f / static_cast<float>(job.sync.replicas)),
      sum_(size_),
      updater_(
          job.optimizer, *parts.optimizer, *parts.work,
          [this](size_t block, std::span<float> scratch) -> std::span<const float> {
            const auto& where = parts_.arena->layout().blocks()[block];
            for (size_t i = 0; i < where.size; ++i) scratch[i] = share_ * sum_[where.begin + i];
            return scratch.first(where.size);
          },
          *parts.team),
      own_(static_cast<size_t>(job.sync.replicas)) {}

Status GradientRounds::begin(const Peers& peers) {
  Arena& work = *parts_.work;
  std::ranges::copy(parts_.arena->weights(), work.weights().begin());
  for (size_t s = 0; s < parts_.optimizer->state_names().size(); ++s) {
    std::ranges::copy(parts_.arena->optimizer_state(s), work.optimizer_state(s).begin());
  }
  if (const size_t next = parts_.optimizer->state_names().size(); next < first_kept_) {
    compressor_->begin(parts_.arena->optimizer_state(next));
  }
  step_ = parts_.arena->counters().step;
  statistics_.assign(statistics().begin(), statistics().end());
  for (size_t r = 0; r < own_.size(); ++r) {
    if (!peers.owns(static_cast<int>(r))) {
      own_[r] = {};
      continue;
    }
    const auto error = parts_.arena->optimizer_state(first_kept_ + r);
    own_[r].error.assign(error.begin(), error.end());
    own_[r].statistics.resize(statistics_.size());
  }
  return {};
}

void GradientRounds::take(int number, std::span<const float> /*after*/) {
  auto& replica = own_[static_cast<size_t>(number)];
  const auto& layout = parts_.arena->layout();
  const auto gradient = parts_.work->optimizer_state(parts_.work->optimizer_states() - 1);
  const float weight = weight_of(number);
  std::atomic<bool> finite = true;
  const size_t blocks = layout.first_block(parts_.arena->first_statistic());
  parts_.team->for_each(blocks, kGrain, [&](int, size_t block) {
    const auto& where = layout.blocks()[block];
    bool all = true;
    for (size_t i = where.begin; i < where.begin + where.size; ++i) {
      replica.error[i] += weight * gradient[i];
      all &= std::isfinite(replica.error[i]);
    }
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  // The replica's step has changed statistics in place; the next one begins with the old ones.
  const auto now = statistics();
  for (size_t i = 0; i < now.size(); ++i) {
    replica.statistics[i] = weight * (statistics_[i] - now[i]);
    if (!std::isfinite(now[i])) finite.store(false, std::memory_order_relaxed);
    now[i] = statistics_[i];
  }
  replica.finite = finite.load(std::memory_order_relaxed);
}

float GradientRounds::weight_of(int replica) const {
  const auto samples = parts_.lanes->samples_of(step_, sync::lanes_of(job_, {&replica, 1}));
  const auto all = parts_.lanes->samples_of(step_, {});
  return static_cast<float>(static_cast<double>(samples * own_.size()) / static_cast<double>(all));
}

// Of a part in each step, so that after some steps all weights have been compared; and of
// everything before a commit.
uint64_t GradientRounds::common_hash(int64_t round, bool all) {
  const auto add = [](std::span<const float> values, uint64_t hash) {
    return hash64(values.data(), values.size_bytes(), hash);
  };
  const auto weights = parts_.work->weights().first(size_);
  if (!all) {
    constexpr int64_t kParts = 16;
    const auto begin = size_ * static_cast<size_t>(round % kParts) / kParts;
    const auto end = size_ * static_cast<size_t>(round % kParts + 1) / kParts;
    return add(weights.subspan(begin, end - begin), 0);
  }
  uint64_t hash = add(weights, 0);
  for (size_t s = 0; s < parts_.optimizer->state_names().size(); ++s) {
    hash = add(parts_.work->optimizer_state(s), hash);
  }
  return add(compressor_->state(), hash);
}

Result<bool> GradientRounds::exchange(int64_t round, const Peers& peers) {
  // Where it helped to compute another worker's replica, that has changed them.
  std::ranges::copy(statistics_, statistics().begin());

  const uint64_t common = common_hash(round, peers.last);
  MUSTER_TRY(const bool finite, compressor_->exchange(round, own_, common, peers, sum_));
  if (!finite) return false;
  update(round, peers.vitals);
  step_ = round + 1;
  // In other steps the next loss tells.
  if (!peers.last) return true;
  const auto weights = parts_.work->weights().first(size_);
  return std::ranges::all_of(weights, [](float w) { return std::isfinite(w); });
}

void GradientRounds::update(int64_t step, const Vitals& vitals) {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    statistics_[i] -= share_ * sum_[statistics_begin_ + i];
  }
  optim::StepScalars scalars;
  scalars.step = step;
  scalars.lr = optim::learning_rate(job_.optimizer, step, parts_.lanes->total_steps());
  updater_.run(scalars, vitals);
  // It takes what is there for statistics of a batch, which these are not.
  std::ranges::copy(statistics_, statistics().begin());
}

void GradientRounds::apply(size_t block) {
  Arena& arena = *parts_.arena;
  Arena& work = *parts_.work;
  const auto& where = arena.layout().blocks()[block];
  const auto copy = [&](std::span<const float> from, std::span<float> to) {
    std::ranges::copy(exact::part(from, where), exact::part(to, where).begin());
  };
  copy(work.weights(), arena.weights());
  const size_t states = parts_.optimizer->state_names().size();
  for (size_t s = 0; s < states; ++s) copy(work.optimizer_state(s), arena.optimizer_state(s));
  if (states < first_kept_) copy(compressor_->state(), arena.optimizer_state(states));
}

}  // namespace muster::train
