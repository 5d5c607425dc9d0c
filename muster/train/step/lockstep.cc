#include "muster/train/step/lockstep.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/comm/local_group.h"
#include "muster/data/blocks/replacements.h"
#include "muster/exact/fixed_point.h"
#include "muster/optim/schedule.h"
#include "muster/sync/recipe.h"

namespace muster::train {

namespace {

// Steps that changed the weights.
int64_t updates_of(const Counters& counters) {
  return counters.step - static_cast<int64_t>(counters.skipped);
}

}  // namespace

Lockstep::Lockstep(const config::Job& job, const StrategyParts& parts)
    : job_(job),
      parts_(parts),
      lanes_(static_cast<int>(job.lanes)),
      few_(job.sync.bits < exact::SumFormat::kAllBits
               ? std::make_unique<FewBits>(job, parts.arena->layout(), *parts.sum,
                                           parts.arena->first_statistic(), *parts.memory)
               : nullptr),
      exchange_(few_.get()),
      updater_(
          job.optimizer, *parts.optimizer, *parts.arena,
          [sum = few_ != nullptr ? &few_->sum() : parts.sum](
              size_t block, std::span<float> scratch) { return sum->read(block, scratch); },
          *parts.team),
      own_lanes_(static_cast<size_t>(job.lanes)),
      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      committer_(parts.arena->layout().blocks().size(), static_cast<int>(job.lanes)) {
  std::iota(own_lanes_.begin(), own_lanes_.end(), 0);
  exchange_.set_vitals(vitals_);
}

void Lockstep::assign(std::vector<int> units, comm::Group* group, Duration timeout) {
  own_lanes_ = sync::lanes_of(job_, units);
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
}

// Servers are told of a commit only when every worker knows of it. Otherwise the only one that does
// could be lost behind that, and the others would compute the step again with rows that have
// changed. Whoever comes here knows of it; so the barrier is enough.
Status Lockstep::publish_rows() {
  if (parts_.rows == nullptr || parts_.arena->counters().step == 0) return {};
  {
    const WaitingForPeers waiting(*vitals_);
    MUSTER_RETURN_IF_ERROR(group_->barrier({.timeout = timeout_}));
  }
  parts_.rows->set_era(parts_.arena->counters().era);
  if (group_->rank() != 0) return {};
  return parts_.rows->commit(parts_.arena->counters().step - 1);
}

void Lockstep::set_vitals(const Vitals* vitals) {
  vitals_ = vitals;
  exchange_.set_vitals(vitals);
  parts_.lanes->set_vitals(vitals);
}

Result<StepReport> Lockstep::run(const std::function<CommitFlags()>& flags) {
  while (true) {
    flip_point(parts_.arena->bytes());
    parts_.auditor->look_at_counters();
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
    MUSTER_RETURN_IF_ERROR(compute());
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
    fault_point(FaultPoint::kBeforeCommit);
    MUSTER_RETURN_IF_ERROR(commit(flags ? flags() : CommitFlags{}));
    if (committer_.message().first_not_finite()) {
      MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
    }
    MUSTER_RETURN_IF_ERROR(parts_.auditor->check());
    fault_point(FaultPoint::kAfterCommit);
    MUSTER_TRY(auto report, apply());
    if (!report) continue;
    MUSTER_RETURN_IF_ERROR(publish_rows());
    return *std::move(report);
  }
}

GradientSum::Mode Lockstep::mode() const {
  if (job_.sync.reduction != "exact") return GradientSum::Mode::kNative;
  // The size of the first gradients is not known: compute them once to find it out. If that step
  // was skipped, the next one is the first. Attempts that damaged data has ended measured nothing.
  const Counters& counters = parts_.arena->counters();
  const bool first =
      updates_of(counters) == 0 && counters.redo.attempt == counters.replaced.attempts;
  return first ? GradientSum::Mode::kDry : GradientSum::Mode::kExact;
}

Status Lockstep::compute() {
  holds_sums_ = false;
  // The state may be another worker's by now, or that of a checkpoint.
  MUSTER_RETURN_IF_ERROR(parts_.lanes->replace(parts_.arena->counters().step,
                                               parts_.arena->counters().replaced.damaged()));
  if (parts_.rows != nullptr) parts_.rows->set_era(parts_.arena->counters().era);
  parts_.sum->begin(mode(), parts_.arena->exponents(), own_lanes_, parts_.arena->counters().step);
  if (few_ != nullptr) few_->begin(parts_.arena->counters().step);
  const int64_t step = parts_.arena->counters().step;
  parts_.auditor->begin_step(parts_.sum->mode() == GradientSum::Mode::kExact,
                             step + 1 == parts_.lanes->total_steps());
  parts_.sum->watch(parts_.auditor->own_lane(), parts_.auditor->other_lane());
  exchange_.begin(*parts_.sum, *group_, {.timeout = timeout_});
  auto lanes = run_lanes();
  if (lanes.ok()) {
    parts_.sum->flush();
  } else {
    parts_.sum->abandon();
  }
  auto summed = finish_sums();
  // A failed group is the cause of lanes that stopped early; a failed lane is nobody else's fault.
  MUSTER_RETURN_IF_ERROR(std::move(summed));
  MUSTER_RETURN_IF_ERROR(std::move(lanes));
  MUSTER_RETURN_IF_ERROR(compare_lanes());
  holds_sums_ = !parts_.auditor->has_finding();
  return {};
}

// With the loss, which is part of the result. One that is not finite may have other bits elsewhere.
uint64_t Lockstep::lane_hash(int lane, uint64_t gradient) const {
  if (parts_.lanes->result(lane).damaged >= 0) return Auditor::kNotCompared;
  const double loss = parts_.lanes->result(lane).loss;
  const double compared = std::isfinite(loss) ? loss : 0;
  return hash64(&compared, sizeof(compared), gradient);
}

Status Lockstep::compare_lanes() {
  const Auditor& auditor = *parts_.auditor;
  const int own = auditor.own_lane();
  const int other = auditor.other_lane();
  return parts_.auditor->compare_lanes(own < 0 ? 0 : lane_hash(own, parts_.sum->own_hash()),
                                       other < 0 ? 0 : lane_hash(other, parts_.sum->other_hash()));
}

Result<uint64_t> Lockstep::recompute(int lane) {
  holds_sums_ = false;
  parts_.sum->begin(mode(), parts_.arena->exponents(), {}, parts_.arena->counters().step);
  parts_.sum->watch(-1, lane);
  MUSTER_RETURN_IF_ERROR(
      parts_.lanes->run(parts_.arena->counters().step, {&lane, 1}, [] { return false; }));
  if (parts_.lanes->result(lane).damaged >= 0) {
    return Error(ErrorKind::kData,
                 "step {}: lane {} cannot be computed again to find out which worker is wrong, "
                 "because block {} of data.train is damaged",
                 parts_.arena->counters().step, lane, parts_.lanes->result(lane).damaged);
  }
  return lane_hash(lane, parts_.sum->other_hash());
}

Status Lockstep::finish_sums() {
  const WaitingForPeers waiting(*vitals_);
  return exchange_.finish();
}

Status Lockstep::run_lanes() {
  to_compute_ = own_lanes_;
  // A peer's lane comes last: this worker's own sums are on their way meanwhile.
  if (parts_.auditor->other_lane() >= 0) to_compute_.push_back(parts_.auditor->other_lane());
  MUSTER_RETURN_IF_ERROR(parts_.lanes->run(parts_.arena->counters().step, to_compute_,
                                           [this] { return exchange_.failed(); }));
  if (exchange_.failed()) return Error(ErrorKind::kInternal, "the group failed during the step");
  if (parts_.rows == nullptr) return {};
  const WaitingForPeers waiting(*vitals_);
  return parts_.rows->wait();
}

Status Lockstep::commit(const CommitFlags& flags) {
  CommitMessage& draft = committer_.begin();
  std::ranges::copy(parts_.sum->seen(), draft.seen().begin());
  for (const int lane : own_lanes_) {
    auto result = parts_.lanes->result(lane);
    result.not_finite = parts_.sum->not_finite(lane);
    if (result.not_finite < 0 && few_ != nullptr) result.not_finite = few_->not_finite();
    draft.set_lane(lane, result);
  }
  MUSTER_TRY(const bool agreed,
             committer_.exchange(flags, *parts_.auditor, *group_, timeout_, *vitals_));
  message_of_.reset();  // that message is gone
  if (!agreed) forget();
  return {};
}

void Lockstep::forget() {
  holds_sums_ = false;
  message_of_.reset();
}

// Or an error, with nothing changed, if there are too many. The message and the state decide that,
// so all workers end; one that has found damage also says what it was.
Status Lockstep::note_damage(std::span<const uint64_t> found) {
  static_assert(data::Replacements::kMost <= kMostReplaced);
  Counters& counters = parts_.arena->counters();
  const auto known = counters.replaced.damaged();
  std::vector<uint64_t> all(known.begin(), known.end());
  for (const uint64_t block : found) {
    if (std::ranges::find(all, block) != all.end()) {
      return Error(ErrorKind::kInternal, "block {} of data.train was read though it is replaced",
                   block);
    }
    all.push_back(block);
  }
  if (auto replaced = parts_.lanes->replace(counters.step, all); !replaced.ok()) {
    const auto reasons = parts_.lanes->take_damage();
    if (reasons.empty()) return std::move(replaced).error();
    return Error(replaced.error().kind(), "{}. The last was: {}", replaced.error().message(),
                 reasons.back());
  }
  message_of_ = position();
  std::ranges::copy(all, counters.replaced.blocks.begin());
  counters.replaced.count = all.size();
  counters.replaced.attempts += 1;
  counters.redo.attempt += 1;
  parts_.arena->seal_counters();
  holds_sums_ = false;
  return {};
}

bool Lockstep::mend_scales() {
  const auto exponents = parts_.arena->exponents();
  if (mode() == GradientSum::Mode::kDry) {
    const auto first = exact::first_exponents(parts_.arena->layout(), committer_.message().seen());
    std::ranges::copy(first, exponents.begin());
    return true;
  }
  if (mode() == GradientSum::Mode::kNative) return false;
  bool overflow = false;
  for (size_t b = 0; b < exponents.size(); ++b) {
    overflow |= !exact::fits(exponents[b], committer_.message().seen()[b], parts_.sum->format(b));
  }
  if (!overflow) return false;
  // The exponents seen are those of the gradients themselves, so the next time everything fits.
  for (size_t b = 0; b < exponents.size(); ++b) {
    exponents[b] = exact::redo_exponent(exponents[b], committer_.message().seen()[b]);
  }
  parts_.arena->counters().redone += 1;
  parts_.arena->counters().redo.overflowed = 1;
  return true;
}

Result<bool> Lockstep::apply_message(std::span<const uint8_t> message) {
  committer_.take_over(message);
  MUSTER_TRY(const auto report, apply());
  return report.has_value();
}

Result<std::optional<StepReport>> Lockstep::apply() {
  MUSTER_CHECK(holds_sums_, "a commit without sums");
  Counters& counters = parts_.arena->counters();
  StepReport report;
  // Before all else: without these blocks other lanes may have other gradients too.
  if (const auto damaged = committer_.message().damaged_blocks(); !damaged.empty()) {
    MUSTER_RETURN_IF_ERROR(note_damage(damaged));
    return std::optional<StepReport>();
  }
  const auto not_finite = committer_.message().first_not_finite();
  for (int lane = 0; lane < lanes_; ++lane)
    report.samples += committer_.message().lane(lane).samples;
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto result = committer_.message().lane(lane);
    report.loss +=
        result.loss * static_cast<double>(result.samples) / static_cast<double>(report.samples);
  }
  if (not_finite) {
    if (job_.not_finite != "skip") return not_finite_error(*not_finite);
    report.skipped = true;
  } else if (mend_scales()) {
    message_of_ = position();
    counters.redo.attempt += 1;
    parts_.arena->seal_counters();
    holds_sums_ = false;
    return std::optional<StepReport>();
  }
  // From here on the step is committed.
  message_of_ = position();
  report.redone = counters.redo.overflowed != 0;
  finish_step(report);
  counters.step += 1;
  counters.redo.attempt = 0;
  counters.redo.overflowed = 0;
  counters.replaced.attempts = 0;
  counters.samples += report.samples;
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto result = committer_.message().lane(lane);
    counters.ledger = hash64(&result.used, sizeof(result.used), counters.ledger);
    counters.replaced.samples += result.replaced;
  }
  counters.skipped += report.skipped ? 1 : 0;
  counters.last.loss = report.loss;
  counters.last.lr = report.lr;
  counters.last.gradient_norm = report.gradient_norm;
  counters.last.samples = report.samples;
  counters.last.steps = 1;
  counters.last.redone = report.redone ? 1 : 0;
  counters.last.skipped = report.skipped ? 1 : 0;
  counters.last.gradient_bits = report.gradient_bits;
  if (report.gradient_bits >= 0 &&
      (counters.fewest_gradient_bits < 0 || report.gradient_bits < counters.fewest_gradient_bits)) {
    counters.fewest_gradient_bits = report.gradient_bits;
  }
  parts_.arena->seal_counters();
  holds_sums_ = false;
  return std::optional(report);
}

void Lockstep::finish_step(StepReport& report) {
  Arena& arena = *parts_.arena;
  const int64_t step = arena.counters().step;
  optim::StepScalars scalars;
  scalars.step = updates_of(arena.counters()) - first_update_;
  scalars.lr = optim::learning_rate(job_.optimizer, step, parts_.lanes->total_steps());
  report.lr = scalars.lr;
  if (report.skipped) return;
  const auto begin = std::chrono::steady_clock::now();
  report.gradient_norm = updater_.run(scalars, *vitals_);
  note_speed(seconds(std::chrono::steady_clock::now() - begin));
  report.gradient_bits = fewest_gradient_bits();
  decline_scales();
}

void Lockstep::decline_scales() {
  const auto exponents = parts_.arena->exponents();
  const auto seen = committer_.message().seen();
  size_t shown = 0;
  size_t coarse = 0;
  for (size_t b = 0; b < exponents.size(); ++b) {
    shown += exact::shows_gradient(seen[b]) ? 1 : 0;
    coarse += exact::is_coarse(exponents[b], seen[b], parts_.sum->format(b)) ? 1 : 0;
  }
  for (size_t b = 0; b < exponents.size(); ++b) {
    exponents[b] = exact::next_exponent(exponents[b], seen[b], parts_.arena->counters().step,
                                        parts_.sum->format(b), 4 * coarse >= shown);
  }
}

int64_t Lockstep::fewest_gradient_bits() const {
  if (parts_.sum->mode() != GradientSum::Mode::kExact) return -1;
  const auto exponents = parts_.arena->exponents();
  const auto blocks = parts_.arena->layout().blocks();
  int64_t fewest = -1;
  for (size_t b = 0; b < exponents.size(); ++b) {
    const uint8_t seen = committer_.message().seen()[b];
    const auto& tensor = parts_.arena->tensors()[blocks[b].tensor];
    if (seen == exact::kNothing || tensor.info.role != optim::Role::kWeight) continue;
    const int64_t bits = exact::bits_above_unit(exponents[b], seen, parts_.sum->format(b));
    fewest = fewest < 0 ? bits : std::min(fewest, bits);
  }
  return fewest;
}

int Lockstep::units_at_once() const {
  return std::max(1, parts_.team->threads() / sync::lanes_per_unit(job_));
}

void Lockstep::note_speed(double update_seconds) {
  if (to_compute_.empty()) return;
  const double all = parts_.lanes->seconds() + update_seconds * parts_.team->size();
  // The lanes of a unit are computed at the same time, as far as there are threads.
  const int lanes = sync::lanes_per_unit(job_);
  const int threads = parts_.team->threads();
  const int turns = (lanes + threads - 1) / threads;
  lane_seconds_ = turns * all / static_cast<double>(to_compute_.size());
}

Error Lockstep::not_finite_error(int lane) {
  const auto result = committer_.message().lane(lane);
  return parts_.lanes->explain_not_finite(parts_.arena->counters().step, lane, result,
                                          parts_.arena->tensor_name(result.not_finite));
}

}  // namespace muster::train
