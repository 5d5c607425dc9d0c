#include "muster/train/audit/audit.h"

#include <algorithm>
#include <map>

namespace muster::train {

int64_t lane_check_interval(int64_t one_in, const std::vector<std::vector<int>>& lanes) {
  int64_t all = 0;
  int64_t checked = 0;
  for (const auto& of_one : lanes) {
    all += static_cast<int64_t>(of_one.size());
    checked += of_one.empty() ? 0 : 1;
  }
  return all == 0 ? 1 : std::max<int64_t>(1, one_in * checked / all);
}

std::vector<LaneCheck> lane_checks(int64_t step, int64_t interval,
                                   const std::vector<std::vector<int>>& lanes) {
  const auto size = static_cast<int64_t>(lanes.size());
  if (size < 2) return {};
  // Another lane and another pair each time.
  const int64_t turn = step / interval;
  const int64_t distance = 1 + turn % (size - 1);
  std::vector<LaneCheck> checks;
  for (int64_t owner = 0; owner < size; ++owner) {
    const auto& own = lanes[static_cast<size_t>(owner)];
    if (own.empty()) continue;
    checks.push_back({own[static_cast<size_t>(turn) % own.size()], static_cast<int>(owner),
                      static_cast<int>((owner + distance) % size)});
  }
  return checks;
}

namespace {

std::optional<uint64_t> majority(std::span<const uint64_t> values) {
  std::map<uint64_t, size_t> votes;
  for (const uint64_t value : values) {
    if (2 * ++votes[value] > values.size()) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<int>> minority(std::span<const uint64_t> values) {
  const auto right = majority(values);
  if (!right) return std::nullopt;
  std::vector<int> others;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != *right) others.push_back(static_cast<int>(i));
  }
  return others;
}

std::optional<std::vector<int>> wrong_ranks(const LaneEvidence& evidence) {
  const auto right = majority(evidence.again);
  if (!right) return std::nullopt;
  std::vector<int> wrong;
  for (size_t i = 0; i < evidence.again.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool first = (rank == evidence.check.owner && evidence.owner != *right) ||
                       (rank == evidence.check.checker && evidence.checker != *right);
    if (first || evidence.again[i] != *right) wrong.push_back(rank);
  }
  return wrong;
}

int64_t Trusted::before(int64_t step, int64_t every, bool lanes_differ) const {
  int64_t result = state;
  if (every > 0 && step - every >= sweep) result = std::max(result, step - every);
  if (lanes_differ) result = every > 0 ? std::min(result, lanes) : lanes;
  return std::clamp<int64_t>(result, 0, step);
}

}  // namespace muster::train
