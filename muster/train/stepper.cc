#include "muster/train/stepper.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include <fmt/ranges.h>

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

}  // namespace

Stepper::Stepper(const config::Job& job, StepParts parts, int64_t total_steps)
    : job_(job),
      parts_(parts),
      total_steps_(total_steps),
      lanes_(static_cast<int>(job.lanes)),
      lane_results_(static_cast<size_t>(job.lanes)),
      exponents_(parts.arena->layout().blocks().size()),
      squares_(exponents_.size()),
      block_norms_(exponents_.size()),
      tensor_norms_(parts.arena->tensors().size()),
      scratch_(static_cast<size_t>(parts.team->threads()), std::vector<float>(exact::kBlockSize)) {}

Result<StepReport> Stepper::run() {
  Arena& arena = *parts_.arena;
  Counters& counters = arena.counters();
  const bool exact = job_.sync.reduction == "exact";
  StepReport report;

  std::copy(arena.exponents().begin(), arena.exponents().end(), exponents_.begin());
  if (exact && counters.step == 0) {
    // Nobody knows the size of the first gradients: compute them once just to look.
    MUSTER_TRY(const auto outcome, run_lanes(GradientSum::Mode::kDry, exponents_));
    if (!outcome.not_finite) {
      exponents_ = exact::first_exponents(arena.layout(), parts_.sum->seen());
    }
  }
  const auto mode = exact ? GradientSum::Mode::kExact : GradientSum::Mode::kNative;
  MUSTER_TRY(auto outcome, run_lanes(mode, exponents_));
  if (outcome.overflow && !outcome.not_finite) {
    // The exponents seen are exact, so the second time everything fits.
    for (size_t b = 0; b < exponents_.size(); ++b) {
      exponents_[b] = exact::redo_exponent(exponents_[b], parts_.sum->seen()[b]);
    }
    report.redone = true;
    MUSTER_TRY(outcome, run_lanes(mode, exponents_));
    MUSTER_CHECK(!outcome.overflow, "a step overflowed with scales made from its own exponents");
  }
  for (const auto& lane : lane_results_) report.samples += lane.samples;
  for (const auto& lane : lane_results_) {
    report.loss +=
        lane.loss * static_cast<double>(lane.samples) / static_cast<double>(report.samples);
  }
  if (outcome.not_finite) {
    if (job_.not_finite != "skip") return not_finite_error(*outcome.not_finite);
    report.skipped = true;
  }

  // From here on the step is committed.
  optim::StepScalars scalars;
  scalars.step = counters.step;
  scalars.lr = optim::learning_rate(job_.optimizer, counters.step, total_steps_);
  report.lr = scalars.lr;
  if (!report.skipped) {
    if (job_.optimizer.clip.norm > 0) {
      report.gradient_norm = gradient_norm();
      scalars.clip_factor = optim::clip_factor(report.gradient_norm, job_.optimizer.clip.norm);
    }
    if (parts_.optimizer->needs_norms()) measure_norms(scalars);
    update(scalars);
    for (size_t b = 0; b < exponents_.size(); ++b) {
      arena.exponents()[b] =
          exact::next_exponent(exponents_[b], parts_.sum->seen()[b], counters.step);
    }
  }
  counters.step += 1;
  counters.samples += report.samples;
  counters.redone += report.redone ? 1 : 0;
  counters.skipped += report.skipped ? 1 : 0;
  return report;
}

Result<GradientSum::Outcome> Stepper::run_lanes(GradientSum::Mode mode,
                                                std::span<const uint8_t> exponents) {
  parts_.sum->begin(mode, exponents);
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  parts_.team->run([&](int member) {
    for (int lane = next++; lane < lanes_ && !failed; lane = next++) {
      if (auto status = run_lane(member, lane); !status.ok()) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::move(status).error();
        failed = true;
      }
    }
  });
  if (error) return *std::move(error);
  return parts_.sum->finish();
}

Status Stepper::run_lane(int member, int lane) {
  const int64_t step = parts_.arena->counters().step;
  auto& result = lane_results_[static_cast<size_t>(lane)];
  const auto batch = parts_.loader->take(static_cast<uint64_t>(step), lane);
  result = {0, batch->count};
  if (batch->count == 0) return {};  // the last step of a job may be short
  const auto total = data::step_slice(*parts_.batches, static_cast<uint64_t>(step)).count;
  const float weight = static_cast<float>(batch->count) / static_cast<float>(total);
  MUSTER_TRY(result.loss,
             parts_.nets[static_cast<size_t>(member)]->train(step, lane, *batch, weight));
  return {};
}

Error Stepper::not_finite_error(const GradientSum::NotFinite& where) {
  const int64_t step = parts_.arena->counters().step;
  const auto batch = parts_.loader->take(static_cast<uint64_t>(step), where.lane);
  if (const auto sample = not_finite_input(*batch, *parts_.schema)) {
    return Error(
        ErrorKind::kNumerics,
        "step {}, lane {}: sample {} of data.train holds a number that is not finite; mend the "
        "data, or set not_finite: skip",
        step, where.lane, *sample);
  }
  const double loss = lane_results_[static_cast<size_t>(where.lane)].loss;
  constexpr size_t kShown = 16;
  const auto shown = std::min(kShown, batch->samples.size());
  const auto first = batch->samples.begin();
  return Error(
      ErrorKind::kNumerics,
      "step {}, lane {}: the gradient of '{}' is not finite ({}); the lane had samples {}{}. "
      "Lower optimizer.lr, clip gradients (optimizer.clip.norm), look at these samples, or set "
      "not_finite: skip",
      step, where.lane, parts_.arena->tensors()[where.tensor].info.name,
      std::isfinite(loss) ? fmt::format("the loss is {:.6g}", loss) : "nor is the loss",
      fmt::join(first, first + static_cast<std::ptrdiff_t>(shown), ", "),
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
    if (info_of(b).role == Role::kFrozen) return;
    const auto view = view_block(b, scratch);
    parts_.optimizer->update(view, info_of(b), scalars, tensor_norms_[view.tensor]);
  });
}

}  // namespace muster::train
