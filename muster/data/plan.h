// Which positions of the stream of samples each step and lane takes: pure arithmetic.
//
// The job sees one endless stream: pass 0 in its order, then pass 1 in its order, ... (order.h).
// Step t takes the next `batch` positions, and lane l of L the part from l*B/L to (l+1)*B/L of
// them, so lanes differ by one sample at most. Batches go across the border between passes: every
// pass uses every sample exactly once, and no step is short except the last.
//
// A job that has ended with a short step may be resumed with more passes. Its next step begins
// where the samples of the short one ended, so the plan says which step begins where in the stream
// (first_step, first_sample) and is used from there on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace muster::data {

// Positions [first, first + count) of the stream.
struct Slice {
  uint64_t first = 0;
  uint64_t count = 0;
  bool operator==(const Slice&) const = default;
};

struct BatchPlan {
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  uint64_t batch = 1;  // of all lanes together; at most 2^40
  uint64_t lanes = 1;  // at most 2^20
  // Where the job ends, whichever it reaches first: a position in the stream (passes * samples), or
  // a number of steps.
  uint64_t total = kUnlimited;
  uint64_t most_steps = kUnlimited;
  // Step first_step begins at position first_sample of the stream.
  uint64_t first_step = 0;
  uint64_t first_sample = 0;

  bool limited() const { return total != kUnlimited || most_steps != kUnlimited; }
  // Steps of the whole job, those before first_step included. Each has at least one sample.
  uint64_t steps() const {
    const uint64_t left = total > first_sample ? total - first_sample : 0;
    const uint64_t end = first_step + left / batch + (left % batch != 0 ? 1 : 0);
    return std::min(end, std::max(most_steps, first_step));
  }
  // The most samples a lane gets in a step.
  uint64_t lane_capacity() const { return (batch + lanes - 1) / lanes; }
};

// The whole step; empty past the end, and before first_step.
inline Slice step_slice(const BatchPlan& plan, uint64_t step) {
  if (step >= plan.steps()) return {plan.total, 0};
  if (step < plan.first_step) return {plan.first_sample, 0};
  const uint64_t first = plan.first_sample + (step - plan.first_step) * plan.batch;
  return {first, std::min(plan.batch, plan.total - first)};
}

// The lane's part of it. Lanes are cut as if the batch were full, so the last, short step leaves
// the later lanes with less or nothing rather than moving samples between lanes.
inline Slice lane_slice(const BatchPlan& plan, uint64_t step, uint64_t lane) {
  const Slice whole = step_slice(plan, step);
  const uint64_t begin = std::min(whole.count, lane * plan.batch / plan.lanes);
  const uint64_t end = std::min(whole.count, (lane + 1) * plan.batch / plan.lanes);
  return {whole.first + begin, end - begin};
}

// The fewest samples that a lane with any has in a step. Only the last step, if it is short, can
// have fewer than batch / lanes.
inline uint64_t fewest_lane_samples(const BatchPlan& plan, uint64_t step) {
  uint64_t fewest = plan.lane_capacity();
  for (uint64_t lane = 0; lane < plan.lanes; ++lane) {
    const uint64_t count = lane_slice(plan, step, lane).count;
    if (count > 0) fewest = std::min(fewest, count);
  }
  return fewest;
}

}  // namespace muster::data
