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

// In the arena: which of the optimizer's states is the first that a replica keeps.
size_t first_kept_state(const config::Job& job, const Arena& arena) {
  const size_t kept = sync::kept_by_replicas(job.sync.strategy).size();
  return arena.optimizer_states() - kept * static_cast<size_t>(job.sync.replicas);
}

void copy(std::span<const float> from, std::span<float> to) {
  MUSTER_CHECK(from.size() == to.size(), "buffers of one layout");
  std::ranges::copy(from, to.begin());
}

}  // namespace

std::vector<std::string> Periodic::state_names(const config::Job& job,
                                               const optim::Optimizer& inner) {
  std::vector<std::string> names;
  const bool gradients = sync::sends_gradients(job.sync.strategy);
  if (gradients || sync::averages_inner_state(job)) names = inner.state_names();
  std::vector<std::string> kept = sync::kept_by_replicas(job.sync.strategy);
  const auto recipe = sync::recipe_of(job.sync);
  if (recipe.elastic) kept = {"replica"};
  if (recipe.momentum != 0 && kept.empty()) names.emplace_back("outer_momentum");
  for (const auto& name : sync::kept_by_all(job.sync.strategy)) names.push_back(name);
  for (const auto& name : kept) {
    for (int64_t r = 0; r < job.sync.replicas; ++r) names.push_back(fmt::format("{}_{}", name, r));
  }
  return names;
}

Periodic::Periodic(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      parts_(parts),
      lanes_(static_cast<int>(job.lanes)),
      recipe_(sync::recipe_of(job.sync)),
      averages_(sync::averages_inner_state(job)),
      runner_(job, parts),
      sums_(job, parts.arena->layout(), parts.arena->first_statistic(), *parts.memory),
      period_(sync::period_of(job.sync)),
      first_kept_state_(first_kept_state(job, *parts.arena)),
      exchange_(make_round_exchange(job, parts, first_kept_state_)),
      radial_(job.sync.merge == "radial" ? std::make_unique<RadialMean>(job, *parts.arena)
                                         : nullptr),
      scratch_(static_cast<size_t>(parts.team->threads()), std::vector<float>(exact::kBlockSize)),
      replicas_(static_cast<size_t>(job.sync.replicas)),

      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      all_(static_cast<size_t>(job.sync.replicas)),
      committer_(parts.arena->layout().blocks().size(),
                 static_cast<int>(job.lanes * sync::steps_per_commit(job.sync))) {
  std::iota(replicas_.begin(), replicas_.end(), 0);
  computed_ = replicas_;
  for (const auto& name : parts.optimizer->state_names()) square_.push_back(optim::is_square(name));
  add_sums();
}

// Buffers: 0 is the weights, then the inner optimizer's states, then what replicas keep.
void Periodic::add_sums() {
  const size_t states = parts_.work->optimizer_states();
  const auto replicas = static_cast<int>(job_.sync.replicas);
  const auto of_each = [&](const ReplicaSums::Sum& sum) {
    for (int r = 0; r < replicas; ++r) {
      sums_.add({.buffer = sum.buffer, .only = r, .bits = sum.bits, .rotated = sum.rotated});
    }
  };
  const ReplicaSums::Sum weights = {.bits = job_.sync.bits,
                                    .rotated = job_.sync.rotation == "hadamard"};
  if (recipe_.elastic) {
    of_each(weights);
  } else if (exchange_ == nullptr) {
    sums_.add(weights);
  }
  first_kept_sum_ = sums_.size();
  for (size_t k = 0; k < sync::kept_by_replicas(job_.sync.strategy).size(); ++k) {
    of_each({.buffer = 1 + states + k, .bits = sync::kept_bits(job_.sync)});
  }
  first_state_sum_ = sums_.size();
  for (size_t state = 1; averages_ && state <= states; ++state) {
    sums_.add({.buffer = state, .bits = sync::state_bits(job_.sync)});
  }
}

void Periodic::assign(std::vector<int> units, comm::Group* group, Duration timeout) {
  replicas_ = std::move(units);
  computed_ = replicas_;
  runner_.set_site(nullptr);
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
  if (exchange_ == nullptr) return;
  // What the replicas of others had after the first round is not here.
  computed_at_.reset();
  // A group that fails takes all rounds since the last commit with it. So nobody may be too late
  // for the others; the coordinator finds those who hang.
  timeout_ = std::max<Duration>(timeout, std::chrono::hours(24));
}

void Periodic::join_site(comm::Group& site, std::vector<int> units) {
  MUSTER_CHECK(site.rank() > 0 ? replicas_.empty() : replicas_ == units,
               "the leader of a site has all its replicas");
  runner_.set_site(&site);
  computed_ = std::move(units);
}

std::vector<int> Periodic::lanes() const {
  std::vector<int> lanes;
  for (const int number : computed_) {
    const auto own = runner_.own_lanes(number);
    lanes.insert(lanes.end(), own.begin(), own.end());
  }
  return lanes;
}

void Periodic::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  runner_.set_vitals(vitals);
}

void Periodic::show_weights() {
  // Those of a round under way are a part of what a commit needs.
  if (in_place()) holds_sums_ = false;
  copy(parts_.arena->weights(), parts_.work->weights());
  runner_.give_up();
}

void Periodic::was_replaced() {
  parts_.arena->seal_counters();
  computed_at_.reset();
}

int64_t Periodic::commit_length() const {
  const int64_t most = sync::steps_per_commit(job_.sync);
  const int64_t end = sync::periodic_steps(job_.sync, parts_.lanes->total_steps());
  return end > 0 ? std::min(most, end - parts_.arena->counters().step) : most;
}

int64_t Periodic::round_begin() const { return parts_.arena->counters().step + round_ * period_; }

int64_t Periodic::round_end() const {
  return std::min(round_begin() + period_, parts_.arena->counters().step + commit_length());
}

bool Periodic::is_last_round() const {
  return round_end() == parts_.arena->counters().step + commit_length();
}

RoundExchange::Peers Periodic::peers() {
  bool finite = true;
  for (const int number : replicas_) {
    if (job_.not_finite == "skip") break;
    const int64_t first = parts_.arena->counters().step;
    const std::span results = all_[static_cast<size_t>(number)].record.results;
    if (results.empty()) continue;  // nothing has been computed
    const auto round = results.subspan(static_cast<size_t>((round_begin() - first) * lanes_),
                                       static_cast<size_t>((round_end() - round_begin()) * lanes_));
    finite &= std::ranges::all_of(round, &LaneResult::finite);
  }
  return {.replicas = replicas_,
          .group = *group_,
          .timeout = timeout_,
          .vitals = *vitals_,
          .finite = finite,
          .last = is_last_round(),
          .end = is_last_round() && round_end() == parts_.lanes->total_steps(),
          .number = round_,
          .states = [this](size_t state, int number) -> std::span<float> {
            if (replicas_.size() == 1) return parts_.work->optimizer_state(state);
            return replica(number).changes[1 + state];
          }};
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
  auto report = run_rounds(flags);
  // The group may not live much longer.
  if (!report.ok() && exchange_ != nullptr) exchange_->cancel();
  return report;
}

Result<StepReport> Periodic::run_rounds(const std::function<CommitFlags()>& flags) {
  flip_point(parts_.arena->bytes());
  parts_.auditor->look_at_counters();
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  MUSTER_TRY(const bool finite, compute());
  if (!finite) return explain_not_finite();
  fault_point(FaultPoint::kBeforeCommit);
  MUSTER_RETURN_IF_ERROR(commit(flags ? flags() : CommitFlags{}));
  if (committer_.message().first_not_finite()) {
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
  }
  MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
  fault_point(FaultPoint::kAfterCommit);
  return apply();
}

Result<bool> Periodic::compute() {
  holds_sums_ = false;
  parts_.auditor->begin_step(false, false);
  if (computed_at_ != position()) MUSTER_RETURN_IF_ERROR(begin_commit());
  MUSTER_RETURN_IF_ERROR(run_replicas());
  while (exchange_ != nullptr) {
    const int64_t number = round_begin() / period_;
    MUSTER_TRY(const bool finite, exchange_->exchange(number, peers()));
    if (!finite) return false;
    if (is_last_round()) break;
    ++round_;
    for (Replica& replica : all_) replica.done = false;
    MUSTER_RETURN_IF_ERROR(run_replicas());
  }
  note_speed();
  MUSTER_TRY(holds_sums_, sum_up());
  return holds_sums_;
}

Status Periodic::begin_commit() {
  round_ = 0;
  for (size_t r = 0; r < all_.size(); ++r) {
    all_[r].done = false;
    const auto number = static_cast<int>(r);
    if (std::ranges::find(replicas_, number) == replicas_.end()) all_[r] = {};  // and its memory
  }
  runner_.give_up();
  if (exchange_ != nullptr) MUSTER_RETURN_IF_ERROR(exchange_->begin(peers()));
  computed_at_ = position();
  return {};
}

Status Periodic::run_replicas() {
  if (!runner_.leads()) MUSTER_RETURN_IF_ERROR(runner_.help(*group_, timeout_));
  for (const int number : replicas_) {
    if (replica(number).done) continue;
    if (runner_.under_way() != number) begin_replica(number);
    MUSTER_RETURN_IF_ERROR(runner_.run_to({.end = round_end(),
                                           .first = parts_.arena->counters().step,
                                           .group = *group_,
                                           .timeout = timeout_,
                                           .tell_state = !in_place()},
                                          replica(number).record));
    finish_replica(number);
  }
  if (runner_.leads()) MUSTER_RETURN_IF_ERROR(runner_.dismiss(timeout_));

  fault_point(FaultPoint::kRound);
  return {};
}

void Periodic::begin_replica(int number) {
  Arena& work = *parts_.work;
  Replica& r = replica(number);
  std::ranges::copy(round_ > 0 ? std::span<const uint8_t>(r.seen) : parts_.arena->exponents(),
                    work.exponents().begin());
  if (round_ == 0) {
    r.record.results.assign(static_cast<size_t>(sync::steps_per_commit(job_.sync) * job_.lanes),
                            {});
    r.record.seconds = 0;
  }
  if (!in_place()) load(number);
  runner_.begin(number, round_begin(), averages_ || in_place() ? 0 : parts_.arena->counters().step);
}

void Periodic::load(int number) {
  Arena& work = *parts_.work;
  const Replica& r = replica(number);
  const size_t own = exchange_ != nullptr ? working(0).size() : 0;  // the rest is frozen
  if (exchange_ != nullptr) copy(exchange_->weights(number), working(0));
  copy(parts_.arena->weights().subspan(own), work.weights().subspan(own));
  if (recipe_.elastic) {
    const auto weights = working(0);
    const auto away = distance(number);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] += away[i];
  }
  for (size_t s = 0; s < work.optimizer_states(); ++s) {
    if (round_ > 0 && replicas_.size() == 1) break;  // they are still there
    if (round_ > 0) {
      copy(r.changes[s + 1], work.optimizer_state(s));
    } else if (averages_) {
      copy(parts_.arena->optimizer_state(s), work.optimizer_state(s));
    } else {
      std::ranges::fill(work.optimizer_state(s), 0.0f);
    }
  }
}

void Periodic::finish_replica(int number) {
  Replica& r = replica(number);
  const auto exponents = parts_.work->exponents();
  r.seen.assign(exponents.begin(), exponents.end());
  r.done = true;
  if (exchange_ != nullptr) exchange_->take(number, working(0));
  if (in_place()) return;
  r.changes.resize(1 + parts_.work->optimizer_states());
  const auto away = recipe_.elastic ? distance(number) : std::span<float>();
  for (size_t buffer = 0; buffer < r.changes.size(); ++buffer) {
    auto& changes = r.changes[buffer];
    const auto after = working(buffer);
    if (buffer == 0 && exchange_ != nullptr) continue;
    if (!is_last_round()) {
      // If there is no other replica they stay where they are.
      if (replicas_.size() > 1) changes.assign(after.begin(), after.end());
      continue;
    }
    if (buffer > 0 && !averages_) continue;
    const auto before = common(buffer);
    changes.resize(before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      const float began = buffer == 0 && !away.empty() ? before[i] + away[i] : before[i];
      changes[i] = began - after[i];
    }
    if (buffer == 0 && radial_ != nullptr) radial_->take(number, changes);
  }
}

Result<bool> Periodic::sum_up() {
  if (radial_ != nullptr) {
    MUSTER_RETURN_IF_ERROR(radial_->exchange(replicas_, *group_, timeout_, *vitals_));
  }
  const size_t first_kept = 1 + parts_.work->optimizer_states();
  const auto values = [&](size_t buffer, int number) {
    return buffer < first_kept ? std::span<const float>(replica(number).changes[buffer])
                               : exchange_->kept(buffer - first_kept, number);
  };
  return sums_.exchange(replicas_, values, parts_.arena->counters().step, *group_, timeout_,
                        *vitals_);
}

// All workers are here. It may be because one of them has a damaged state; else some loss or
// gradient may say more, for which a commit that nobody applies is made.
Error Periodic::explain_not_finite() {
  if (const auto told = commit({}); !told.ok()) return told.error();
  if (const auto found = parts_.auditor->check_not_finite(); !found.ok()) return found.error();
  if (const auto found = parts_.auditor->check(); !found.ok()) return found.error();
  const auto record = committer_.message().first_not_finite();
  if (record && job_.not_finite != "skip") return not_finite_error(*record);
  if (sync::sends_gradients(job_.sync.strategy)) {
    return Error(ErrorKind::kNumerics,
                 "step {}: the weights, or what replicas send of their gradients, are not finite; "
                 "lower optimizer.lr",
                 round_begin());
  }
  return Error(
      ErrorKind::kNumerics,
      "steps {} to {}: the weights or the optimizer's state of a replica are not finite at "
      "the end of the round; lower optimizer.lr or clip gradients (optimizer.clip.norm)",
      round_begin(), round_end() - 1);
}

Status Periodic::commit(const CommitFlags& flags) {
  CommitMessage& draft = committer_.begin();
  const auto seen = draft.seen();
  for (const int number : replicas_) {
    const Replica& r = replica(number);
    for (size_t b = 0; b < seen.size(); ++b) seen[b] = std::max(seen[b], r.seen[b]);
    const auto lanes = sync::lanes_of(job_, {&number, 1});
    for (int64_t step = 0; step < commit_length(); ++step) {
      for (const int lane : lanes) {
        const auto at = static_cast<int>(step * lanes_ + lane);
        draft.set_lane(at, r.record.results[static_cast<size_t>(at)]);
      }
    }
  }
  MUSTER_TRY(const bool agreed,
             committer_.exchange(flags, *parts_.auditor, *group_, timeout_, *vitals_));
  message_of_.reset();  // that message is gone
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
  const int64_t length = commit_length();
  Counters& counters = parts_.arena->counters();
  const auto not_finite = committer_.message().first_not_finite();
  if (not_finite && job_.not_finite != "skip") return not_finite_error(*not_finite);
  StepReport report;
  report.steps = length;
  report.skipped = not_finite.has_value();
  uint64_t ledger = counters.ledger;
  add_up_losses(report, ledger);
  report.lr =
      optim::learning_rate(job_.optimizer, counters.step + length - 1, parts_.lanes->total_steps());
  message_of_ = position();
  if (radial_ != nullptr) radial_->measure(sums_, *parts_.team);
  constexpr size_t kGrain = 16;
  parts_.team->for_each(parts_.arena->layout().blocks().size(), kGrain,
                        [&](int thread, size_t block) {
                          merge(block, std::span(scratch_[static_cast<size_t>(thread)]));
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

void Periodic::add_up_losses(StepReport& report, uint64_t& ledger) const {
  double loss = 0;
  uint64_t finite_samples = 0;
  for (int record = 0; record < static_cast<int>(report.steps) * lanes_; ++record) {
    const auto result = committer_.message().lane(record);
    report.samples += result.samples;
    if (result.finite()) {
      loss += result.loss * static_cast<double>(result.samples);
      finite_samples += result.samples;
    }
    ledger = hash64(&result.used, sizeof(result.used), ledger);
  }
  report.loss = finite_samples == 0 ? 0 : loss / static_cast<double>(finite_samples);
}

Error Periodic::not_finite_error(int record) {
  const auto result = committer_.message().lane(record);
  return parts_.lanes->explain_not_finite(
      parts_.arena->counters().step + record / lanes_, record % lanes_, result,
      parts_.arena->tensor_name(result.not_finite), !sync::sends_gradients(job_.sync.strategy));
}

void Periodic::merge(size_t block, std::span<float> scratch) {
  if (exchange_ != nullptr) {
    take_over_kept(block, scratch);
    exchange_->apply(block);
  } else if (recipe_.elastic) {
    merge_elastic(block, scratch);
  } else {
    merge_weights(block, scratch);
  }
  if (averages_) merge_states(block, scratch);
}

// All that the replicas keep, as it was rounded: its sums and states are in the same order.
void Periodic::take_over_kept(size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  for (size_t k = 0; k < first_state_sum_ - first_kept_sum_; ++k) {
    const auto kept = sums_.read(first_kept_sum_ + k, block, scratch).first(where.size);
    const auto state = parts_.arena->optimizer_state(first_kept_state_ + k);
    std::ranges::copy(kept, exact::part(state, where).begin());
  }
}

void Periodic::merge_weights(size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  const auto& info = parts_.arena->tensors()[where.tensor].info;
  sums_.read(0, block, scratch);
  const auto mean = scratch.first(where.size);
  const float share = radial_ != nullptr ? radial_->factor(where.tensor)
                                         : 1.0f / static_cast<float>(job_.sync.replicas);
  for (float& d : mean) d *= share;
  const auto weights = parts_.arena->weights().subspan(where.begin, where.size);
  if (info.role == optim::Role::kStatistic) {
    for (size_t i = 0; i < mean.size(); ++i) weights[i] -= mean[i];
    return;
  }
  std::span<float> momentum;
  if (recipe_.momentum != 0) {
    const size_t last = parts_.arena->optimizer_states() - 1;
    momentum = exact::part(parts_.arena->optimizer_state(last), where);
  }
  sync::outer_step(recipe_, mean, momentum, weights);
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
    sums_.read(static_cast<size_t>(r), block, scratch);
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

void Periodic::merge_states(size_t block, std::span<float> scratch) {
  const auto& where = parts_.arena->layout().blocks()[block];
  const float share = 1.0f / static_cast<float>(job_.sync.replicas);
  for (size_t s = 0; s < parts_.work->optimizer_states(); ++s) {
    sums_.read(first_state_sum_ + s, block, scratch);
    const auto state = exact::part(parts_.arena->optimizer_state(s), where);
    for (size_t i = 0; i < state.size(); ++i) {
      state[i] -= scratch[i] * share;
      // Whatever rounding does to their means.
      if (square_[s]) state[i] = std::max(state[i], 0.0f);
    }
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

void Periodic::note_speed() {
  double seconds = 0;
  for (const int number : replicas_) seconds += replica(number).record.seconds;
  if (replicas_.empty()) return;
  replica_seconds_ =
      seconds / static_cast<double>(replicas_.size()) / static_cast<double>(commit_length());
}

}  // namespace muster::train
