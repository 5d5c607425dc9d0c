#include "muster/train/step/radial_mean.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "muster/optim/norm.h"

namespace muster::train {
namespace {

// Of |u| / R. Directions that have nothing in common have the square root of 1/R.
constexpr double kLeast = 1e-3;

}  // namespace

RadialMean::RadialMean(const config::Job& job, const Arena& arena)
    : arena_(arena),
      replicas_(static_cast<size_t>(job.sync.replicas)),
      weights_(arena.first_statistic()),
      own_(replicas_ * weights_),
      lengths_(own_.size()),
      squares_(arena.layout().blocks().size()),
      factors_(arena.layout().tensors(), 1.0f / static_cast<float>(replicas_)) {}

void RadialMean::take(int replica, std::span<float> changes) {
  const auto& layout = arena_.layout();
  for (size_t t = 0; t < weights_; ++t) {
    const auto blocks = layout.blocks().subspan(layout.first_block(t),
                                                layout.first_block(t + 1) - layout.first_block(t));
    double squares = 0;
    for (const auto& block : blocks) squares += optim::sum_of_squares(exact::part(changes, block));
    const double length = std::sqrt(squares);
    own_[static_cast<size_t>(replica) * weights_ + t] = length;
    // One that is not finite is found when it is added up.
    if (length == 0 || !std::isfinite(length)) continue;
    const auto scale = 1 / length;
    for (const auto& block : blocks) {
      for (float& d : exact::part(changes, block)) {
        d = static_cast<float>(static_cast<double>(d) * scale);
      }
    }
  }
}

Status RadialMean::exchange(std::span<const int> replicas, comm::Group& group, Duration timeout,
                            const Vitals& vitals) {
  // Each replica is one worker's, and the others have zeros: the largest of each byte is its.
  std::ranges::fill(lengths_, 0.0);
  for (const int replica : replicas) {
    const auto begin = static_cast<ptrdiff_t>(static_cast<size_t>(replica) * weights_);
    std::copy_n(own_.begin() + begin, weights_, lengths_.begin() + begin);
  }
  const std::span bytes(reinterpret_cast<uint8_t*>(lengths_.data()),
                        lengths_.size() * sizeof(double));
  const WaitingForPeers waiting(vitals);
  return group.allreduce_max(bytes, {.timeout = timeout});
}

void RadialMean::measure(const ReplicaSums& sums, Team& team) {
  const auto& layout = arena_.layout();
  constexpr size_t kGrain = 16;
  team.for_each(layout.first_block(weights_), kGrain, [&](int, size_t block) {
    std::array<float, exact::kBlockSize> room;  // NOLINT(*-member-init): written before it is read
    const auto sum = sums.read(0, block, room).first(layout.blocks()[block].size);
    squares_[block] = optim::sum_of_squares(sum);
  });
  for (size_t t = 0; t < weights_; ++t) {
    double squares = 0;
    for (size_t b = layout.first_block(t); b < layout.first_block(t + 1); ++b) {
      squares += squares_[b];
    }
    double length = 0;
    for (size_t r = 0; r < replicas_; ++r) length += lengths_[r * weights_ + t];
    length /= static_cast<double>(replicas_);
    // If the directions cancel each other, what is left of them is rounding, and is not blown up.
    const double least = kLeast * static_cast<double>(replicas_);
    factors_[t] = static_cast<float>(length / std::max(std::sqrt(squares), least));
  }
}

}  // namespace muster::train
