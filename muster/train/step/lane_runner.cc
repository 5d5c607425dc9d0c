#include "muster/train/step/lane_runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>

#include <fmt/ranges.h>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/hash.h"

namespace muster::train {
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

LaneRunner::LaneRunner(Team& team, std::span<const std::unique_ptr<LaneNet>> nets,
                       const data::Schema& schema, int lanes)
    : team_(team),
      nets_(nets),
      schema_(schema),
      vitals_(&kNoVitals),
      results_(static_cast<size_t>(lanes)) {}

void LaneRunner::set_loader(data::Loader* loader, const data::BatchPlan* batches) {
  loader_ = loader;
  batches_ = batches;
}

int64_t LaneRunner::total_steps() const {
  return batches_->limited() ? static_cast<int64_t>(batches_->steps()) : 0;
}

Status LaneRunner::run(int64_t step, std::span<const int> lanes,
                       const std::function<bool()>& stop) {
  MUSTER_CHECK(loader_ != nullptr, "lanes without a loader");
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  double spent = 0;            // guarded by mutex
  stop_ = &stop;
  team_.run([&](int member) {
    const auto begin = std::chrono::steady_clock::now();
    for (size_t i = next++; i < lanes.size() && !failed && !stop(); i = next++) {
      if (auto status = run_lane(member, step, lanes[i]); !status.ok()) {
        const std::lock_guard lock(mutex);
        // A wait for data that `stop` ended: as if the lane had not been begun.
        const bool ended = status.error().kind() == ErrorKind::kInterrupted && stop();
        if (!ended && !error) error = std::move(status).error();
        failed = true;
      }
    }
    const std::lock_guard lock(mutex);
    spent += muster::seconds(std::chrono::steady_clock::now() - begin);
  });
  stop_ = nullptr;
  auto over = nets_[0]->lanes_over(step);
  seconds_ = spent;
  if (error) return *std::move(error);
  return over;
}

Status LaneRunner::replace(int64_t step, std::span<const uint64_t> damaged) {
  MUSTER_CHECK(loader_ != nullptr, "lanes without a loader");
  auto replaced = loader_->replace(damaged, static_cast<uint64_t>(step));
  if (!replaced.ok()) return std::move(replaced).error().context("data.train");
  return {};
}

std::vector<std::string> LaneRunner::take_damage() {
  const std::lock_guard lock(damage_mutex_);
  return std::exchange(damage_, {});
}

bool LaneRunner::keep_waiting() const {
  vitals_->note_progress();
  const auto* stop = stop_.load();
  return stop == nullptr || !(*stop)();
}

uint64_t LaneRunner::samples_of(int64_t step, std::span<const int> lanes) const {
  const auto number = static_cast<uint64_t>(step);
  if (lanes.empty()) return data::step_slice(*batches_, number).count;
  uint64_t samples = 0;
  for (const int lane : lanes) {
    samples += data::lane_slice(*batches_, number, static_cast<uint64_t>(lane)).count;
  }
  return samples;
}

Status LaneRunner::run_lane(int member, int64_t step, int lane) {
  auto& result = results_[static_cast<size_t>(lane)];
  MUSTER_TRY(const auto batch, loader_->take(static_cast<uint64_t>(step), lane));
  result = {.samples = batch->count, .replaced = batch->replaced};
  if (batch->damage) {
    // It adds nothing. The commit says so, and the step is computed again.
    result = {.damaged = static_cast<int64_t>(batch->damage->block)};
    const std::lock_guard lock(damage_mutex_);
    damage_.push_back(batch->damage->what);
    return {};
  }
  if (batch->count == 0) return {};  // the last step of a job may be short
  result.used = hash64(batch->samples.data(), batch->count * sizeof(batch->samples[0]));
  const float weight = static_cast<float>(batch->count) / static_cast<float>(samples_of_mean(step));
  if (around_.begin) around_.begin(member, step, lane);
  MUSTER_TRY(result.loss, nets_[static_cast<size_t>(member)]->train(step, lane, *batch, weight));
  if (around_.end) MUSTER_RETURN_IF_ERROR(around_.end(member, step, lane, result));
  vitals_->note_progress();
  return {};
}

Error LaneRunner::explain_not_finite(int64_t step, int lane, const LaneResult& result,
                                     const std::string& tensor, bool may_skip) {
  const std::string_view skip = may_skip ? ", or set not_finite: skip" : "";
  auto taken = loader_->take(static_cast<uint64_t>(step), lane);
  if (!taken.ok()) return std::move(taken).error();
  const auto& batch = *taken;
  if (batch->damage) return Error(ErrorKind::kData, "{}", batch->damage->what);
  if (const auto sample = not_finite_input(*batch, schema_)) {
    return Error(
        ErrorKind::kNumerics,
        "step {}, lane {}: sample {} of data.train holds a number that is not finite; mend the "
        "data{}",
        step, lane, *sample, skip);
  }
  std::string what = "the loss is not finite, though all gradients are";
  if (!tensor.empty()) {
    what = fmt::format("the gradient of '{}' is not finite ({})", tensor,
                       std::isfinite(result.loss) ? fmt::format("the loss is {:.6g}", result.loss)
                                                  : "nor is the loss");
  }
  constexpr size_t kShown = 16;
  const auto shown = std::min(kShown, batch->samples.size());
  const auto first = batch->samples.begin();
  return Error(
      ErrorKind::kNumerics,
      "step {}, lane {}: {}; the lane had samples {}{}. Lower optimizer.lr, clip gradients "
      "(optimizer.clip.norm), look at these samples{}",
      step, lane, what, fmt::join(first, first + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < batch->samples.size() ? ", ..." : "", skip);
}

}  // namespace muster::train
