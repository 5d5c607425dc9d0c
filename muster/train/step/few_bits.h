// Gradients of few bits, for slow links: what `sync.bits` below 32 does in lockstep.
//
// The lanes of a group (sync.lane_groups) are added up as ever, in fixed point with all bits, in a
// buffer of the group's own (gradient_sum.h). When this worker's groups are complete, bucket by
// bucket:
//
//   exponents   the largest exponent of each block over all groups of all workers: a small
//               allreduce
//   rounding    each group's sum to `bits` bits (exact::SumFormat), stochastically, after a
//               rotation if the job says so (exact/rotation.h)
//   sum         of these integers over all groups, packed for the network (comm::OpOptions::pack)
//
// Rounding is a function of (seed, step, group, element) and the exponents; the sum is exact. So
// the result does not depend on which worker had which group. The scales fit exactly, because they
// are made from the values themselves; that is why a group's sum has to be kept until all others
// are known, 4 bytes for each parameter and group of this worker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/base/result.h"
#include "muster/comm/group.h"
#include "muster/config/job.h"
#include "muster/exact/block_layout.h"
#include "muster/train/step/gradient_sum.h"

namespace muster::train {

class FewBits {
 public:
  // `groups`: the sums of the groups, of the same layout, with buckets of bucket_bytes() for the
  // job's bits; it must outlive this.
  FewBits(const config::Job& job, const exact::BlockLayout& layout, GradientSum& groups,
          size_t late, Memory& memory);

  // After groups.begin() of the step.
  void begin(int64_t step);
  // Collective: the bucket is complete in all groups of this worker. Buckets in the same order on
  // all workers.
  Status exchange(size_t bucket, comm::Group& group, const comm::OpOptions& options);
  // The first tensor that has become too large for a float when its group was added up or rotated;
  // -1: none. The same on all workers.
  int64_t not_finite() const { return not_finite_; }
  // What all have afterwards.
  GradientSum& sum() { return sum_; }

 private:
  const exact::BlockLayout& layout_;
  GradientSum& groups_;
  GradientSum sum_;
  std::vector<uint8_t> exponents_;  // by block
  std::vector<float> scratch_;      // one block
  int64_t not_finite_ = -1;
};

}  // namespace muster::train
