#include "muster/comm/measure_links.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "muster/base/check.h"
#include "muster/base/clock.h"

namespace muster::comm {
namespace {

Result<double> time_allreduce(Group& group, std::span<int32_t> data, const OpOptions& options) {
  // So that nobody is late.
  MUSTER_RETURN_IF_ERROR(group.barrier(options));
  const auto begin = std::chrono::steady_clock::now();
  MUSTER_RETURN_IF_ERROR(group.allreduce_sum(data, options));
  return seconds(std::chrono::steady_clock::now() - begin);
}

}  // namespace

Result<Links> measure_links(Group& group, const OpOptions& options,
                            const std::function<void()>& progress) {
  MUSTER_CHECK(group.size() > 1, "a link has two ends");
  // An allreduce has two phases, in each of which something goes one way.
  constexpr double kPhases = 2;
  std::vector<int32_t> small(static_cast<size_t>(group.size()));
  std::array<double, 9> times = {};
  for (double& time : times) {
    MUSTER_TRY(time, time_allreduce(group, small, options));
    if (progress) progress();
  }
  // The least: whatever else the machines do only adds to it.
  const double little = std::ranges::min(times);

  // As much as takes long enough to be measured, but no more than fits.
  constexpr double kLongEnough = 0.25;
  constexpr size_t kMost = size_t{64} << 20;  // bytes
  std::vector<int32_t> data(size_t{4} << 10);
  double much = 0;
  for (;;) {
    MUSTER_TRY(much, time_allreduce(group, data, options));
    if (progress) progress();
    // What one member decides all do.
    std::array<double, 1> seen = {much};
    MUSTER_RETURN_IF_ERROR(group.broadcast(std::span<double>(seen), 0, options));
    const bool most = data.size() * sizeof(int32_t) >= kMost;
    if (seen[0] > kLongEnough || most) {
      // Once more: something else may have been in the way.
      MUSTER_TRY(const double again, time_allreduce(group, data, options));
      if (progress) progress();
      much = std::min(much, again);
      seen = {much};
      MUSTER_RETURN_IF_ERROR(group.broadcast(std::span<double>(seen), 0, options));
      if (seen[0] > kLongEnough || most) break;
    }
    data.resize(data.size() * (seen[0] > kLongEnough / 4 ? 4 : 16));
  }
  const auto members = static_cast<double>(group.size());
  const double sent = kPhases * (members - 1) / members * static_cast<double>(data.size() * 4);
  std::array<double, 2> result = {sent / std::max(much - little, 1e-9), little / kPhases};
  MUSTER_RETURN_IF_ERROR(group.broadcast(std::span<double>(result), 0, options));
  return Links{.rate = result[0], .delay = result[1]};
}

}  // namespace muster::comm
