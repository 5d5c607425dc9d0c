#include "muster/train/stepper.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/fault_point.h"
#include "muster/base/hash.h"
#include "muster/comm/local_group.h"
#include "muster/exact/fixed_point.h"
#include "muster/optim/norm.h"
#include "muster/optim/schedule.h"

namespace muster::train {

using optim::Role;

namespace {

// The first sample of the batch with an input that is not finite, if there is one.
std::optional<uint64_t> not_finite_input(const data::Batch& batch, const data::Schema& schema) {
  if (schema.input != data::DType::kFloat32) return std::nullopt;
  const auto* values = reinterpret_cast<const float*>(batch.inputs.data());
  for (uint64_t i = 0; i < batch.count; ++i) {
    for (size_t j = 0; j < schema.input_elements(); ++j) {
      if (!std::isfinite(*values++)) return batch.samples[i];
    }
  }
  return std::nullopt;
}

// Steps that changed the weights.
int64_t updates_of(const Counters& counters) {
  return counters.step - static_cast<int64_t>(counters.skipped);
}

}  // namespace

const Vitals Stepper::kNoVitals;

Stepper::Stepper(const config::Job& job, StepParts parts)
    : job_(job),
      parts_(parts),
      lanes_(static_cast<int>(job.lanes)),
      exchange_(*parts.sum),
      own_lanes_(static_cast<size_t>(job.lanes)),
      alone_(comm::solo_group("this worker")),
      group_(alone_.get()),
      message_(parts.arena->layout().blocks().size(), static_cast<int>(job.lanes)),
      draft_(message_),
      lane_results_(static_cast<size_t>(job.lanes)),
      squares_(parts.arena->layout().blocks().size()),
      block_norms_(squares_.size()),
      tensor_norms_(parts.arena->tensors().size()),
      scratch_(static_cast<size_t>(parts.team->threads()), std::vector<float>(exact::kBlockSize)) {
  std::iota(own_lanes_.begin(), own_lanes_.end(), 0);
}

void Stepper::assign(std::vector<int> lanes, comm::Group* group, Duration timeout) {
  own_lanes_ = std::move(lanes);
  group_ = group != nullptr ? group : alone_.get();
  timeout_ = timeout;
}

Result<StepReport> Stepper::run(const std::function<CommitFlags()>& flags) {
  while (true) {
    flip_point(parts_.arena->bytes());
    parts_.auditor->look_at_counters();
    MUSTER_RETURN_IF_ERROR(check_audit());
    MUSTER_RETURN_IF_ERROR(compute());
    MUSTER_RETURN_IF_ERROR(check_audit());
    fault_point(FaultPoint::kBeforeCommit);
    MUSTER_RETURN_IF_ERROR(commit(flags ? flags() : CommitFlags{}));
    if (first_not_finite(message_)) MUSTER_RETURN_IF_ERROR(parts_.auditor->check_not_finite());
    MUSTER_RETURN_IF_ERROR(check_audit());
    fault_point(FaultPoint::kAfterCommit);
    MUSTER_TRY(auto report, apply(message_));
    if (report) return *std::move(report);
  }
}

GradientSum::Mode Stepper::mode() const {
  if (job_.sync.reduction != "exact") return GradientSum::Mode::kNative;
  // The size of the first gradients is not known: compute them once to find it out. If that step
  // was skipped, the next one is the first.
  const Counters& counters = parts_.arena->counters();
  const bool first = updates_of(counters) == 0 && counters.attempt == 0;
  return first ? GradientSum::Mode::kDry : GradientSum::Mode::kExact;
}

Status Stepper::compute() {
  holds_sums_ = false;
  parts_.sum->begin(mode(), parts_.arena->exponents(), static_cast<int>(own_lanes_.size()),
                    parts_.arena->counters().step);
  const int64_t step = parts_.arena->counters().step;
  parts_.auditor->begin_step(parts_.sum->mode() == GradientSum::Mode::kExact,
                             step + 1 == total_steps());
  parts_.sum->watch(parts_.auditor->own_lane(), parts_.auditor->other_lane());
  exchange_.begin(*group_, {.timeout = timeout_});
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
uint64_t Stepper::lane_hash(int lane, uint64_t gradient) const {
  const double loss = lane_results_[static_cast<size_t>(lane)].loss;
  const double compared = std::isfinite(loss) ? loss : 0;
  return hash64(&compared, sizeof(compared), gradient);
}

Status Stepper::compare_lanes() {
  const Auditor& auditor = *parts_.auditor;
  const int own = auditor.own_lane();
  const int other = auditor.other_lane();
  return parts_.auditor->compare_lanes(own < 0 ? 0 : lane_hash(own, parts_.sum->own_hash()),
                                       other < 0 ? 0 : lane_hash(other, parts_.sum->other_hash()));
}

Status Stepper::check_audit() const {
  if (!parts_.auditor->has_finding()) return {};
  if (parts_.auditor->own_damage()) {
    return Error(
        ErrorKind::kMachine,
        "the counters of this worker have changed by themselves: the memory of this machine "
        "is faulty; test it, then resume from the last checkpoint");
  }
  return Error(ErrorKind::kNumerics, "step {}: workers that should have the same bits differ",
               parts_.arena->counters().step);
}

Result<uint64_t> Stepper::recompute(int lane) {
  holds_sums_ = false;
  parts_.sum->begin(mode(), parts_.arena->exponents(), 0, parts_.arena->counters().step);
  parts_.sum->watch(-1, lane);
  Status status;
  parts_.team->run([&](int member) {
    if (member == 0) status = run_lane(member, lane);
  });
  parts_.nets[0]->lanes_over();
  MUSTER_RETURN_IF_ERROR(std::move(status));
  return lane_hash(lane, parts_.sum->other_hash());
}

Status Stepper::finish_sums() {
  const WaitingForPeers waiting(*vitals_);
  return exchange_.finish();
}

Status Stepper::run_lanes() {
  // A peer's lane comes last: this worker's own sums are on their way meanwhile.
  const int other = parts_.auditor->other_lane();
  const size_t count = own_lanes_.size() + (other >= 0 ? 1 : 0);
  computed_lanes_ = count;
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  double spent = 0;            // guarded by mutex
  parts_.team->run([&](int member) {
    const auto begin = std::chrono::steady_clock::now();
    for (size_t i = next++; i < count && !failed && !exchange_.failed(); i = next++) {
      const int lane = i < own_lanes_.size() ? own_lanes_[i] : other;
      if (auto status = run_lane(member, lane); !status.ok()) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::move(status).error();
        failed = true;
      }
    }
    const std::lock_guard lock(mutex);
    spent += seconds(std::chrono::steady_clock::now() - begin);
  });
  parts_.nets[0]->lanes_over();
  lanes_spent_ = spent;
  if (error) return *std::move(error);
  if (exchange_.failed()) return Error(ErrorKind::kInternal, "the group failed during the step");
  return {};
}

Status Stepper::commit(const CommitFlags& flags) {
  draft_.clear();
  std::ranges::copy(parts_.sum->seen(), draft_.seen().begin());
  for (const int lane : own_lanes_) {
    auto result = lane_results_[static_cast<size_t>(lane)];
    result.not_finite = parts_.sum->not_finite(lane);
    draft_.set_lane(lane, result);
  }
  draft_.set_flags(flags);
  if (const auto hash = parts_.auditor->hash_state()) draft_.set_state_hash(*hash);
  const WaitingForPeers waiting(*vitals_);
  MUSTER_RETURN_IF_ERROR(group_->allreduce_max(draft_.bytes(), {.timeout = timeout_}));
  std::swap(draft_, message_);
  if (!message_.states_agree()) {
    parts_.auditor->states_differ();
    forget();  // this commit leads nowhere
  }
  return {};
}

roster::Position Stepper::position() const {
  const Counters& counters = parts_.arena->counters();
  // An evaluation changes the state too (the best so far, the last figures), once at most in a
  // step.
  const int64_t evaluated = counters.eval_step == counters.step ? 1 : 0;
  return {static_cast<uint64_t>(counters.step),
          static_cast<uint32_t>(counters.attempt + evaluated)};
}

void Stepper::forget() {
  holds_sums_ = false;
  message_of_.reset();
}

bool Stepper::mend_scales(const CommitMessage& message) {
  const auto exponents = parts_.arena->exponents();
  if (mode() == GradientSum::Mode::kDry) {
    const auto first = exact::first_exponents(parts_.arena->layout(), message.seen());
    std::ranges::copy(first, exponents.begin());
    return true;
  }
  if (mode() == GradientSum::Mode::kNative) return false;
  bool overflow = false;
  for (size_t b = 0; b < exponents.size(); ++b) {
    overflow |= !exact::fits(exponents[b], message.seen()[b], lanes_);
  }
  if (!overflow) return false;
  // The exponents seen are those of the gradients themselves, so the next time everything fits.
  for (size_t b = 0; b < exponents.size(); ++b) {
    exponents[b] = exact::redo_exponent(exponents[b], message.seen()[b]);
  }
  parts_.arena->counters().redone += 1;
  parts_.arena->counters().redoing = 1;
  return true;
}

std::optional<int> Stepper::first_not_finite(const CommitMessage& message) const {
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto result = message.lane(lane);
    if (result.not_finite >= 0 || !std::isfinite(result.loss)) return lane;
  }
  return std::nullopt;
}

Result<std::optional<StepReport>> Stepper::apply(const CommitMessage& message) {
  MUSTER_CHECK(holds_sums_, "a commit without sums");
  Counters& counters = parts_.arena->counters();
  StepReport report;
  const auto not_finite = first_not_finite(message);
  for (int lane = 0; lane < lanes_; ++lane) report.samples += message.lane(lane).samples;
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto result = message.lane(lane);
    report.loss +=
        result.loss * static_cast<double>(result.samples) / static_cast<double>(report.samples);
  }
  if (not_finite) {
    if (job_.not_finite != "skip") return not_finite_error(message, *not_finite);
    report.skipped = true;
  } else if (mend_scales(message)) {
    message_of_ = position();
    counters.attempt += 1;
    parts_.arena->seal_counters();
    holds_sums_ = false;
    return std::optional<StepReport>();
  }
  // From here on the step is committed.
  message_of_ = position();
  report.redone = counters.redoing != 0;
  finish_step(message, report);
  counters.step += 1;
  counters.attempt = 0;
  counters.redoing = 0;
  counters.samples += report.samples;
  for (int lane = 0; lane < lanes_; ++lane) {
    const uint64_t used = message.lane(lane).used;
    counters.ledger = hash64(&used, sizeof(used), counters.ledger);
  }
  counters.skipped += report.skipped ? 1 : 0;
  counters.last_loss = report.loss;
  counters.last_lr = report.lr;
  counters.last_gradient_norm = report.gradient_norm;
  counters.last_samples = report.samples;
  counters.last_redone = report.redone ? 1 : 0;
  counters.last_skipped = report.skipped ? 1 : 0;
  counters.last_gradient_bits = report.gradient_bits;
  if (report.gradient_bits >= 0 &&
      (counters.fewest_gradient_bits < 0 || report.gradient_bits < counters.fewest_gradient_bits)) {
    counters.fewest_gradient_bits = report.gradient_bits;
  }
  parts_.arena->seal_counters();
  holds_sums_ = false;
  return std::optional(report);
}

void Stepper::finish_step(const CommitMessage& message, StepReport& report) {
  Arena& arena = *parts_.arena;
  const int64_t step = arena.counters().step;
  optim::StepScalars scalars;
  scalars.step = updates_of(arena.counters());
  scalars.lr = optim::learning_rate(job_.optimizer, step, total_steps());
  report.lr = scalars.lr;
  if (report.skipped) return;
  const auto begin = std::chrono::steady_clock::now();
  if (job_.optimizer.clip.norm > 0) {
    report.gradient_norm = gradient_norm();
    scalars.clip_factor = optim::clip_factor(report.gradient_norm, job_.optimizer.clip.norm);
  }
  if (parts_.optimizer->needs_norms()) measure_norms(scalars);
  update(scalars);
  note_speed(seconds(std::chrono::steady_clock::now() - begin));
  report.gradient_bits = fewest_gradient_bits(message);
  const auto exponents = arena.exponents();
  for (size_t b = 0; b < exponents.size(); ++b) {
    exponents[b] = exact::next_exponent(exponents[b], message.seen()[b], step, lanes_);
  }
}

int64_t Stepper::fewest_gradient_bits(const CommitMessage& message) const {
  if (parts_.sum->mode() != GradientSum::Mode::kExact) return -1;
  const auto exponents = parts_.arena->exponents();
  int64_t fewest = -1;
  for (size_t b = 0; b < exponents.size(); ++b) {
    const uint8_t seen = message.seen()[b];
    if (seen == exact::kNothing || info_of(b).role != Role::kWeight) continue;
    const int64_t bits = exact::bits_above_unit(exponents[b], seen, lanes_);
    fewest = fewest < 0 ? bits : std::min(fewest, bits);
  }
  return fewest;
}

int64_t Stepper::total_steps() const {
  const auto& batches = *parts_.batches;
  return batches.limited() ? static_cast<int64_t>(batches.steps()) : 0;
}

void Stepper::note_speed(double update_seconds) {
  if (own_lanes_.empty()) return;
  const double all = lanes_spent_ + update_seconds * parts_.team->size();
  lane_seconds_ = all / static_cast<double>(computed_lanes_);
}

Status Stepper::run_lane(int member, int lane) {
  const int64_t step = parts_.arena->counters().step;
  auto& result = lane_results_[static_cast<size_t>(lane)];
  const auto batch = parts_.loader->take(static_cast<uint64_t>(step), lane);
  result = {.samples = batch->count};
  if (batch->count == 0) return {};  // the last step of a job may be short
  result.used = hash64(batch->samples.data(), batch->count * sizeof(batch->samples[0]));
  const auto total = data::step_slice(*parts_.batches, static_cast<uint64_t>(step)).count;
  const float weight = static_cast<float>(batch->count) / static_cast<float>(total);
  MUSTER_TRY(result.loss,
             parts_.nets[static_cast<size_t>(member)]->train(step, lane, *batch, weight));
  vitals_->note_progress();
  return {};
}

Error Stepper::not_finite_error(const CommitMessage& message, int lane) {
  const int64_t step = parts_.arena->counters().step;
  const auto where = message.lane(lane);
  const auto batch = parts_.loader->take(static_cast<uint64_t>(step), lane);
  if (const auto sample = not_finite_input(*batch, *parts_.schema)) {
    return Error(
        ErrorKind::kNumerics,
        "step {}, lane {}: sample {} of data.train holds a number that is not finite; mend the "
        "data, or set not_finite: skip",
        step, lane, *sample);
  }
  std::string what = "the loss is not finite, though all gradients are";
  if (where.not_finite >= 0) {
    const auto& tensor = parts_.arena->tensors()[static_cast<size_t>(where.not_finite)];
    what = fmt::format("the gradient of '{}' is not finite ({})", tensor.info.name,
                       std::isfinite(where.loss) ? fmt::format("the loss is {:.6g}", where.loss)
                                                 : "nor is the loss");
  }
  constexpr size_t kShown = 16;
  const auto shown = std::min(kShown, batch->samples.size());
  const auto first = batch->samples.begin();
  return Error(
      ErrorKind::kNumerics,
      "step {}, lane {}: {}; the lane had samples {}{}. Lower optimizer.lr, clip gradients "
      "(optimizer.clip.norm), look at these samples, or set not_finite: skip",
      step, lane, what, fmt::join(first, first + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < batch->samples.size() ? ", ..." : "");
}

const optim::TensorInfo& Stepper::info_of(size_t block) const {
  return parts_.arena->tensors()[parts_.arena->layout().blocks()[block].tensor].info;
}

optim::BlockView Stepper::view_block(size_t block, std::span<float> scratch) {
  Arena& arena = *parts_.arena;
  const auto& where = arena.layout().blocks()[block];
  optim::BlockView view;
  view.tensor = where.tensor;
  view.weights = arena.weights().subspan(where.begin, where.size);
  view.gradient = parts_.sum->read(block, scratch);
  for (size_t s = 0; s < arena.slots(); ++s) view.slots[s] = arena.slot(s).data() + where.begin;
  return view;
}

void Stepper::for_each_block(
    const std::function<void(size_t block, std::span<float> scratch)>& body) {
  constexpr size_t kGrain = 16;  // 64 Ki elements: long enough not to fight over the counter
  parts_.team->for_each(parts_.arena->layout().blocks().size(), kGrain, [&](int thread, size_t b) {
    body(b, scratch_[static_cast<size_t>(thread)]);
  });
}

double Stepper::gradient_norm() {
  for_each_block([&](size_t b, std::span<float> scratch) {
    const bool counts = info_of(b).role == Role::kWeight;
    squares_[b] =
        counts ? optim::sum_of_squares(parts_.sum->read(b, scratch), job_.optimizer.clip.value) : 0;
  });
  double squares = 0;
  for (const double s : squares_) squares += s;
  return std::sqrt(squares);
}

void Stepper::measure_norms(const optim::StepScalars& scalars) {
  for_each_block([&](size_t b, std::span<float> scratch) {
    block_norms_[b] = {};
    if (info_of(b).role != Role::kWeight) return;
    block_norms_[b] = parts_.optimizer->measure(view_block(b, scratch), info_of(b), scalars);
  });
  const auto blocks = parts_.arena->layout().blocks();
  for (auto& n : tensor_norms_) n = {};
  for (size_t b = 0; b < blocks.size(); ++b) {
    tensor_norms_[blocks[b].tensor] += block_norms_[b];
  }
}

void Stepper::update(const optim::StepScalars& scalars) {
  for_each_block([&](size_t b, std::span<float> scratch) {
    const auto view = view_block(b, scratch);
    parts_.optimizer->update(view, info_of(b), scalars, tensor_norms_[view.tensor]);
  });
}

}  // namespace muster::train
