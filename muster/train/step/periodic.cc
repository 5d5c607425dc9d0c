#include "muster/train/step/periodic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/comm/local_group.h"
#include "muster/exact/fixed_point.h"
#include "muster/optim/schedule.h"

namespace muster::train {
namespace {

// States of the optimizer take part in sums with at least so many bits.
constexpr int64_t kStateBits = 8;

config::Job inner_job(config::Job job) {
  job.sync = {};
  job.audit.every = 0;
  job.audit.lanes = 0;
  // Whether the job goes on is decided by all workers together, when the round is committed.
  job.not_finite = "skip";
  return job;
}

config::OptimizerOptions outer_options(const sync::Recipe& recipe) {
  config::OptimizerOptions options;
  options.kind = "sgd";
  options.lr = recipe.lr;
  options.momentum = recipe.momentum;
  options.nesterov = recipe.nesterov && recipe.momentum != 0;
  options.weight_decay = 0;
  return options;
}

// Sums of squares are never negative, whatever rounding does to their means.
bool is_square(std::string_view state) {
  return state == "exp_avg_sq" || state == "square_avg" || state == "sum";
}

void copy(std::span<const float> from, std::span<float> to) {
  MUSTER_CHECK(from.size() == to.size(), "buffers of one layout");
  std::ranges::copy(from, to.begin());
}

}  // namespace

Result<std::unique_ptr<Periodic>> Periodic::create(const config::Job& job,
                                                   const StrategyParts& parts) {
  MUSTER_TRY(auto outer, optim::make_optimizer(outer_options(sync::recipe_of(job.sync))));
  return std::unique_ptr<Periodic>(new Periodic(job, parts, std::move(outer)));
}

std::vector<std::string> Periodic::state_names(const config::Job& job,
                                               const optim::Optimizer& inner) {
  std::vector<std::string> names;
  if (sync::averages_inner_state(job)) names = inner.state_names();
  const auto recipe = sync::recipe_of(job.sync);
  if (recipe.momentum != 0) names.emplace_back("outer_momentum");
  for (int64_t r = 0; recipe.elastic && r < job.sync.replicas; ++r) {
    names.push_back(fmt::format("replica_{}", r));
  }
  return names;
}

Periodic::Periodic(const config::Job& job, const StrategyParts& parts,
                   std::unique_ptr<optim::Optimizer> outer)
    : job_(job),
      inner_job_(inner_job(job)),
      parts_(parts),
      lanes_(static_cast<int>(job.lanes)),
      recipe_(sync::recipe_of(job.sync)),
      averages_(sync::averages_inner_state(job)),
      outer_(std::move(outer)),
      inner_auditor_(inner_job_, *parts.work),
      inner_(inner_job_, {.arena = parts.work,
                          .sum = parts.sum,
                          .team = parts.team,
                          .lanes = parts.lanes,
                          .optimizer = parts.optimizer,
                          .auditor = &inner_auditor_,
                          .memory = parts.memory}),
      scratch_(static_cast<size_t>(parts.team->threads()), std::vector<float>(exact::kBlockSize)),
      replicas_(static_cast<size_t>(job.sync.replicas)),
      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      all_(static_cast<size_t>(job.sync.replicas)),
      committer_(parts.arena->layout().blocks().size(),
                 static_cast<int>(job.lanes * job.sync.period)) {
  std::iota(replicas_.begin(), replicas_.end(), 0);
  exchange_.set_vitals(vitals_);
  const auto add = [&](size_t buffer, int only) {
    const int64_t bits = buffer == 0 ? job.sync.bits : std::max(job.sync.bits, kStateBits);
    Merged merged;
    merged.buffer = buffer;
    merged.only = only;
    merged.square = buffer > 0 && is_square(parts.optimizer->state_names()[buffer - 1]);
    merged.sum = std::make_unique<GradientSum>(
        parts.arena->layout(), static_cast<int>(job.sync.replicas),
        bucket_bytes(job.sync.bucket, bits), parts.arena->first_statistic(), *parts.memory);
    merged.sum->set_rounding({.stochastic = job.sync.rounding == "stochastic" || bits < 32,
                              .seed = hash64(&buffer, sizeof(buffer), job.seed),
                              .bits = static_cast<int>(bits),
                              .rotated = buffer == 0 && job.sync.rotation == "hadamard"});
    merged.exponents.resize(parts.arena->layout().blocks().size());
    merged_.push_back(std::move(merged));
  };
  if (recipe_.elastic) {
    for (int r = 0; r < static_cast<int>(job.sync.replicas); ++r) add(0, r);
  } else {
    add(0, -1);
  }
  for (size_t state = 1; averages_ && state <= parts.work->optimizer_states(); ++state) {
    add(state, -1);
  }
}

void Periodic::assign(std::vector<int> units, comm::Group* group, Duration timeout) {
  replicas_ = std::move(units);
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
}

std::vector<int> Periodic::lanes() const { return sync::lanes_of(job_, replicas_); }

void Periodic::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  exchange_.set_vitals(vitals);
  parts_.lanes->set_vitals(vitals);
}

void Periodic::show_weights() {
  copy(parts_.arena->weights(), parts_.work->weights());
  under_way_ = -1;
}

void Periodic::was_replaced() {
  parts_.arena->seal_counters();
  computed_at_.reset();
}

int64_t Periodic::round_length() const {
  const int64_t total = parts_.lanes->total_steps();
  const int64_t step = parts_.arena->counters().step;
  return total > 0 ? std::min(job_.sync.period, total - step) : job_.sync.period;
}

std::span<float> Periodic::common(size_t buffer) {
  const size_t n = parts_.arena->layout().block_elements();
  return buffer == 0 ? parts_.arena->weights().first(n) : parts_.arena->optimizer_state(buffer - 1);
}

std::span<float> Periodic::distance(int number) {
  const size_t states = averages_ ? parts_.work->optimizer_states() : 0;
  return parts_.arena->optimizer_state(states + static_cast<size_t>(number));
}

std::span<float> Periodic::working(size_t buffer) {
  const size_t n = parts_.arena->layout().block_elements();
  return buffer == 0 ? parts_.work->weights().first(n) : parts_.work->optimizer_state(buffer - 1);
}

Result<StepReport> Periodic::run(const std::function<CommitFlags()>& flags) {
  flip_point(parts_.arena->bytes());
  parts_.auditor->look_at_counters();
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  MUSTER_RETURN_IF_ERROR(compute());
  fault_point(FaultPoint::kBeforeCommit);
  MUSTER_RETURN_IF_ERROR(commit(flags ? flags() : CommitFlags{}));
  if (committer_.message().first_not_finite()) {
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
  }
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  fault_point(FaultPoint::kAfterCommit);
  return apply();
}

Status Periodic::compute() {
  holds_sums_ = false;
  const int64_t length = round_length();
  parts_.auditor->begin_step(false, false);
  if (computed_at_ != position()) {
    for (Replica& replica : all_) replica.done = false;
    under_way_ = -1;
    computed_at_ = position();
  }
  for (const int number : replicas_) {
    if (!replica(number).done) MUSTER_RETURN_IF_ERROR(run_replica(number, length));
  }
  note_speed(length);
  MUSTER_RETURN_IF_ERROR(agree_on_scales());
  MUSTER_RETURN_IF_ERROR(sum_changes());
  holds_sums_ = true;
  return {};
}

void Periodic::begin_replica(int number) {
  Arena& work = *parts_.work;
  copy(parts_.arena->weights(), work.weights());
  if (recipe_.elastic) {
    const auto weights = working(0);
    const auto away = distance(number);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] += away[i];
  }
  for (size_t s = 0; s < work.optimizer_states(); ++s) {
    if (averages_) {
      copy(parts_.arena->optimizer_state(s), work.optimizer_state(s));
    } else {
      std::ranges::fill(work.optimizer_state(s), 0.0f);
    }
  }
  std::ranges::copy(parts_.arena->exponents(), work.exponents().begin());
  work.counters() = parts_.arena->counters();
  work.seal_counters();
  inner_.forget();
  inner_.begin_optimizer_at(averages_ ? 0 : parts_.arena->counters().step);
  Replica& r = replica(number);
  r.results.assign(static_cast<size_t>(job_.sync.period * job_.lanes), {});
  r.seconds = 0;
  under_way_ = number;
  steps_done_ = 0;
}

Status Periodic::run_replica(int number, int64_t length) {
  if (under_way_ != number) begin_replica(number);
  const auto lanes = sync::lanes_of(job_, {&number, 1});
  inner_.assign(lanes, nullptr, timeout_);
  parts_.lanes->take_mean_over(lanes);
  for (; steps_done_ < length; ++steps_done_) {
    // A round is long: whoever is lost meanwhile must be replaced soon.
    if (group_->failed()) return Error(ErrorKind::kInternal, "the group failed during the round");
    // A short last step may have no samples for this replica; then it stays as it is.
    const int64_t step = parts_.arena->counters().step + steps_done_;
    if (parts_.lanes->samples_of_mean(step) == 0) continue;
    const auto begin = std::chrono::steady_clock::now();
    MUSTER_RETURN_IF_ERROR(run_step(replica(number), lanes, steps_done_));
    replica(number).seconds += seconds(std::chrono::steady_clock::now() - begin);
  }
  finish_replica(number);
  return {};
}

Status Periodic::run_step(Replica& replica, const std::vector<int>& lanes, int64_t step) {
  while (true) {
    MUSTER_RETURN_IF_ERROR(inner_.compute());
    for (const int lane : lanes) {
      auto result = parts_.lanes->result(lane);
      result.not_finite = parts_.sum->not_finite(lane);
      replica.results[static_cast<size_t>(step * lanes_ + lane)] = result;
    }
    MUSTER_RETURN_IF_ERROR(inner_.commit({}));
    MUSTER_TRY(const auto report, inner_.apply());
    if (report) return {};
  }
}

void Periodic::finish_replica(int number) {
  Replica& r = replica(number);
  r.changes.resize(1 + (averages_ ? parts_.work->optimizer_states() : 0));
  const auto away = recipe_.elastic ? distance(number) : std::span<float>();
  for (size_t buffer = 0; buffer < r.changes.size(); ++buffer) {
    const auto before = common(buffer);
    const auto after = working(buffer);
    auto& changes = r.changes[buffer];
    changes.resize(before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      const float began = buffer == 0 && !away.empty() ? before[i] + away[i] : before[i];
      changes[i] = began - after[i];
    }
  }
  const auto exponents = parts_.work->exponents();
  r.seen.assign(exponents.begin(), exponents.end());
  r.done = true;
  under_way_ = -1;
}

// The replicas of this worker that add to a sum.
std::vector<int> Periodic::adding(const Merged& merged) const {
  if (merged.only < 0) return replicas_;
  if (std::ranges::find(replicas_, merged.only) == replicas_.end()) return {};
  return {merged.only};
}

void Periodic::add_changes(Merged& merged) {
  const auto& layout = parts_.arena->layout();
  for (const int number : adding(merged)) {
    const auto& changes = replica(number).changes[merged.buffer];
    for (size_t t = layout.tensors(); t-- > 0;) {
      if (layout.first_block(t) == layout.first_block(t + 1)) continue;
      merged.sum->add(number, t, changes.data() + layout.tensor_begin(t));
      vitals_->note_progress();
    }
  }
  merged.sum->flush();
}

// Exponents of the changes themselves, so that every scale fits.
Status Periodic::agree_on_scales() {
  const size_t blocks = parts_.arena->layout().blocks().size();
  std::vector<uint8_t> largest;
  largest.reserve(merged_.size() * blocks);
  for (Merged& merged : merged_) {
    merged.sum->begin(GradientSum::Mode::kDry, merged.exponents, adding(merged),
                      parts_.arena->counters().step);
    add_changes(merged);
    largest.insert(largest.end(), merged.sum->seen().begin(), merged.sum->seen().end());
  }
  {
    const WaitingForPeers waiting(*vitals_);
    MUSTER_RETURN_IF_ERROR(group_->allreduce_max(largest, {.timeout = timeout_}));
  }
  if (std::ranges::find(largest, exact::kNotFinite) != largest.end()) {
    // All workers see it. It may be because one of them has a damaged state.
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
    return Error(ErrorKind::kNumerics,
                 "steps {} to {}: the weights or the optimizer's state of a replica are not finite "
                 "at the end of the round; lower optimizer.lr or clip gradients "
                 "(optimizer.clip.norm)",
                 parts_.arena->counters().step, parts_.arena->counters().step + round_length() - 1);
  }
  auto from = largest.begin();
  for (Merged& merged : merged_) {
    std::copy_n(from, blocks, merged.exponents.begin());
    from += static_cast<ptrdiff_t>(blocks);
  }
  return {};
}

Status Periodic::sum_changes() {
  for (Merged& merged : merged_) {
    merged.sum->begin(GradientSum::Mode::kExact, merged.exponents, adding(merged),
                      parts_.arena->counters().step);
    exchange_.begin(*merged.sum, *group_, {.timeout = timeout_});
    add_changes(merged);
    const WaitingForPeers waiting(*vitals_);
    MUSTER_RETURN_IF_ERROR(exchange_.finish());
  }
  return {};
}

Status Periodic::commit(const CommitFlags& flags) {
  CommitMessage& draft = committer_.begin();
  const auto seen = draft.seen();
  for (const int number : replicas_) {
    const Replica& r = replica(number);
    for (size_t b = 0; b < seen.size(); ++b) seen[b] = std::max(seen[b], r.seen[b]);
    const auto lanes = sync::lanes_of(job_, {&number, 1});
    for (int64_t step = 0; step < round_length(); ++step) {
      for (const int lane : lanes) {
        const auto at = static_cast<int>(step * lanes_ + lane);
        draft.set_lane(at, r.results[static_cast<size_t>(at)]);
      }
    }
  }
  MUSTER_TRY(const bool agreed,
             committer_.exchange(flags, *parts_.auditor, *group_, timeout_, *vitals_));
  if (!agreed) forget();
  return {};
}

Result<bool> Periodic::apply_message(std::span<const uint8_t> message) {
  committer_.take_over(message);
  MUSTER_TRY(const auto report, apply());
  (void)report;
  return true;
}

Result<StepReport> Periodic::apply() {
  MUSTER_CHECK(holds_sums_, "a commit without sums");
  const int64_t length = round_length();
  Counters& counters = parts_.arena->counters();
  const auto not_finite = committer_.message().first_not_finite();
  if (not_finite && job_.not_finite != "skip") return not_finite_error(*not_finite);
  StepReport report;
  report.steps = length;
  report.skipped = not_finite.has_value();
  uint64_t ledger = counters.ledger;
  double loss = 0;
  uint64_t finite_samples = 0;
  for (int64_t step = 0; step < length; ++step) {
    for (int lane = 0; lane < lanes_; ++lane) {
      const auto result = committer_.message().lane(static_cast<int>(step * lanes_ + lane));
      report.samples += result.samples;
      if (result.finite()) {
        loss += result.loss * static_cast<double>(result.samples);
        finite_samples += result.samples;
      }
      ledger = hash64(&result.used, sizeof(result.used), ledger);
    }
  }
  report.loss = finite_samples == 0 ? 0 : loss / static_cast<double>(finite_samples);
  report.lr =
      optim::learning_rate(job_.optimizer, counters.step + length - 1, parts_.lanes->total_steps());
  message_of_ = position();
  constexpr size_t kGrain = 16;
  parts_.team->for_each(
      parts_.arena->layout().blocks().size(), kGrain, [&](int thread, size_t block) {
        const auto scratch = std::span(scratch_[static_cast<size_t>(thread)]);
        recipe_.elastic ? merge_elastic(block, scratch) : merge_weights(block, scratch);
        for (const Merged& merged : merged_) {
          if (merged.buffer > 0) merge_state(merged, block, scratch);
        }
      });
  std::ranges::copy(committer_.message().seen(), parts_.arena->exponents().begin());
  counters.step += length;
  counters.samples += report.samples;
  counters.ledger = ledger;
  counters.last.loss = report.loss;
  counters.last.lr = report.lr;
  counters.last.gradient_norm = -1;
  counters.last.samples = report.samples;
  counters.last.steps = length;
  counters.last.redone = 0;
  counters.last.skipped = report.skipped ? 1 : 0;
  counters.last.gradient_bits = -1;
  parts_.arena->seal_counters();
  holds_sums_ = false;
  return report;
}

Error Periodic::not_finite_error(int record) {
  const auto result = committer_.message().lane(record);
  return parts_.lanes->explain_not_finite(parts_.arena->counters().step + record / lanes_,
                                          record % lanes_, result,
                                          parts_.arena->tensor_name(result.not_finite));
}

void Periodic::merge_weights(size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  const auto& info = parts_.arena->tensors()[where.tensor].info;
  merged_[0].sum->read(block, scratch);
  const auto mean = scratch.first(where.size);
  const float share = 1.0f / static_cast<float>(job_.sync.replicas);
  for (float& d : mean) d *= share;
  const auto weights = parts_.arena->weights().subspan(where.begin, where.size);
  if (info.role == optim::Role::kStatistic) {
    for (size_t i = 0; i < mean.size(); ++i) weights[i] -= mean[i];
    return;
  }
  optim::BlockView view;
  view.tensor = where.tensor;
  view.weights = weights;
  view.gradient = mean;
  if (recipe_.momentum != 0) {
    const size_t last = parts_.arena->optimizer_states() - 1;
    view.states[0] = parts_.arena->optimizer_state(last).data() + where.begin;
  }
  outer_->update(view, info, {.step = 0, .lr = recipe_.lr});
}

void Periodic::merge_elastic(size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  const auto weights = common(0).subspan(where.begin, where.size);
  const auto rate = static_cast<float>(recipe_.lr / static_cast<double>(job_.sync.replicas));
  std::array<float, exact::kBlockSize> centre;  // NOLINT(*-member-init): written before it is read
  std::ranges::copy(weights, centre.begin());
  // Until the new centre is known, `distance` has the replica's weights.
  for (int r = 0; r < static_cast<int>(job_.sync.replicas); ++r) {
    const auto own = distance(r).subspan(where.begin, where.size);
    merged_[static_cast<size_t>(r)].sum->read(block, scratch);
    for (size_t i = 0; i < own.size(); ++i) {
      const float after = weights[i] + own[i] - scratch[i];
      const float drawn = rate * (after - weights[i]);
      own[i] = after - drawn;
      centre[i] += drawn;
    }
  }
  for (int r = 0; r < static_cast<int>(job_.sync.replicas); ++r) {
    const auto own = distance(r).subspan(where.begin, where.size);
    for (size_t i = 0; i < own.size(); ++i) own[i] -= centre[i];
  }
  std::copy_n(centre.begin(), weights.size(), weights.begin());
}

void Periodic::merge_state(const Merged& merged, size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  merged.sum->read(block, scratch);
  const float share = 1.0f / static_cast<float>(job_.sync.replicas);
  const auto state = common(merged.buffer).subspan(where.begin, where.size);
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] -= scratch[i] * share;
    if (merged.square) state[i] = std::max(state[i], 0.0f);
  }
}

void Periodic::forget() {
  holds_sums_ = false;
  message_of_.reset();
  computed_at_.reset();
}

Result<uint64_t> Periodic::recompute(int lane) {
  return Error(ErrorKind::kInternal, "lane {} cannot be computed by itself", lane);
}

void Periodic::note_speed(int64_t length) {
  double seconds = 0;
  for (const int number : replicas_) seconds += replica(number).seconds;
  if (replicas_.empty() || length == 0) return;
  replica_seconds_ = seconds / static_cast<double>(replicas_.size()) / static_cast<double>(length);
}

}  // namespace muster::train
