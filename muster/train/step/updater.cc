#include "muster/train/step/updater.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "muster/base/check.h"
#include "muster/exact/block_layout.h"
#include "muster/optim/norm.h"

namespace muster::train {

using optim::Role;

namespace {
// From how many rows and columns on a matrix is shared by all threads.
constexpr size_t kLargeSide = 128;
}  // namespace

Updater::Updater(const config::OptimizerOptions& options, const optim::Optimizer& optimizer,
                 Arena& arena, Gradient gradient, Team& team)
    : options_(options),
      optimizer_(optimizer),
      arena_(arena),
      gradient_(std::move(gradient)),
      team_(team),
      squares_(arena.layout().blocks().size()),
      block_norms_(squares_.size()),
      tensor_norms_(arena.tensors().size()),
      scratch_(static_cast<size_t>(team.threads()), std::vector<float>(exact::kBlockSize)) {
  MUSTER_CHECK(arena.optimizer_states() <= std::size(optim::BlockView{}.states),
               "more states than an optimizer may have");
  for (size_t t = 0; t < arena.tensors().size(); ++t) {
    const auto& info = arena.tensors()[t].info;
    matrix_.push_back(optimizer.takes_matrix(info));
    if (!matrix_.back()) continue;
    (std::min(info.rows, info.columns) >= kLargeSide ? large_ : small_).push_back(t);
  }
  if (large_.empty() && small_.empty()) return;
  directions_.resize(arena.layout().block_elements());
  newton_schulz_.resize(scratch_.size());
}

double Updater::run(optim::StepScalars scalars, const Vitals& vitals) {
  double norm = -1;
  if (options_.clip.norm > 0) {
    norm = gradient_norm();
    scalars.clip_factor = optim::clip_factor(norm, options_.clip.norm);
  }
  if (optimizer_.needs_norms()) measure_norms(scalars);
  if (!directions_.empty()) find_directions(scalars, vitals);
  for_each_block([&](size_t b, std::span<float> scratch) {
    if (matrix_[arena_.layout().blocks()[b].tensor]) {
      return optimizer_.follow(view_direction(b), info_of(b), scalars);
    }
    const auto view = view_block(b, scratch);
    optimizer_.update(view, info_of(b), scalars, tensor_norms_[view.tensor]);
  });
  return norm;
}

const optim::TensorInfo& Updater::info_of(size_t block) const {
  return arena_.tensors()[arena_.layout().blocks()[block].tensor].info;
}

optim::BlockView Updater::view_block(size_t block, std::span<float> scratch) {
  const auto& where = arena_.layout().blocks()[block];
  optim::BlockView view;
  view.tensor = where.tensor;
  view.weights = arena_.weights().subspan(where.begin, where.size);
  view.gradient = gradient_(block, scratch);
  for (size_t s = 0; s < arena_.optimizer_states(); ++s)
    view.states[s] = arena_.optimizer_state(s).data() + where.begin;
  return view;
}

void Updater::for_each_block(
    const std::function<void(size_t block, std::span<float> scratch)>& body) {
  constexpr size_t kGrain = 16;  // 64 Ki elements: long enough not to fight over the counter
  team_.for_each(arena_.layout().blocks().size(), kGrain,
                 [&](int thread, size_t b) { body(b, scratch_[static_cast<size_t>(thread)]); });
}

double Updater::gradient_norm() {
  for_each_block([&](size_t b, std::span<float> scratch) {
    const bool counts = info_of(b).role == Role::kWeight;
    squares_[b] = counts ? optim::sum_of_squares(gradient_(b, scratch), options_.clip.value) : 0;
  });
  double squares = 0;
  for (const double s : squares_) squares += s;
  return std::sqrt(squares);
}

void Updater::measure_norms(const optim::StepScalars& scalars) {
  for_each_block([&](size_t b, std::span<float> scratch) {
    block_norms_[b] = {};
    if (info_of(b).role != Role::kWeight) return;
    block_norms_[b] = optimizer_.measure(view_block(b, scratch), info_of(b), scalars);
  });
  const auto blocks = arena_.layout().blocks();
  for (auto& n : tensor_norms_) n = {};
  for (size_t b = 0; b < blocks.size(); ++b) {
    tensor_norms_[blocks[b].tensor] += block_norms_[b];
  }
}

optim::BlockView Updater::view_direction(size_t block) {
  const auto& where = arena_.layout().blocks()[block];
  optim::BlockView view;
  view.tensor = where.tensor;
  view.weights = exact::part(arena_.weights(), where);
  view.gradient = exact::part(std::span<const float>(directions_), where);
  return view;
}

std::span<float> Updater::direction_of(size_t tensor) {
  return std::span(directions_)
      .subspan(arena_.layout().tensor_begin(tensor), arena_.layout().tensor_size(tensor));
}

void Updater::find_directions(const optim::StepScalars& scalars, const Vitals& vitals) {
  for_each_block([&](size_t b, std::span<float> scratch) {
    const auto& where = arena_.layout().blocks()[b];
    if (!matrix_[where.tensor]) return;
    optimizer_.accumulate(view_block(b, scratch), scalars,
                          exact::part(std::span(directions_), where));
  });
  const auto info = [&](size_t t) -> const optim::TensorInfo& { return arena_.tensors()[t].info; };
  team_.for_each(small_.size(), 1, [&](int thread, size_t i) {
    const size_t t = small_[i];
    newton_schulz_[static_cast<size_t>(thread)].run(
        direction_of(t), info(t).rows, info(t).columns,
        [](size_t rows, const auto& body) { body(0, rows); });
  });
  const auto together = [&](size_t rows, const auto& body) {
    constexpr size_t kPart = 32;
    team_.for_each((rows + kPart - 1) / kPart, 1, [&](int, size_t part) {
      body(part * kPart, std::min(rows, (part + 1) * kPart));
      vitals.note_progress();  // a product of large matrices takes its time
    });
  };
  for (const size_t t : large_) {
    newton_schulz_[0].run(direction_of(t), info(t).rows, info(t).columns, together);
  }
}

}  // namespace muster::train
