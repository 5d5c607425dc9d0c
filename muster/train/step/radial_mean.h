// Radial-directional averaging of what replicas changed (sync.merge: radial): for each tensor, with
// d_r what replica r changed,
//
//   D = mean of |d_r| * u / |u|,   u = sum of d_r / |d_r|
//
// and less where |u| is almost nothing.
//
// The plain mean of R vectors that have little in common is shorter than each of them by up to the
// square root of R; this one is not. Decoupled DiLoCo, arXiv 2604.21428. Running statistics have
// the plain mean.
//
// One thread calls it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/train/step/replica_sums.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

class RadialMean {
 public:
  // The arena must outlive it.
  RadialMean(const config::Job& job, const Arena& arena);

  // What a replica of this worker changed, in all blocks: becomes d_r / |d_r|.
  void take(int replica, std::span<float> changes);
  // Collective: the lengths of all replicas. `replicas`: of this worker.
  Status exchange(std::span<const int> replicas, comm::Group& group, Duration timeout,
                  const Vitals& vitals);
  // u has been summed up: sum 0.
  void measure(const ReplicaSums& sums, Team& team);
  // D of a tensor is this times u.
  float factor(size_t tensor) const { return factors_[tensor]; }

 private:
  const Arena& arena_;
  const size_t replicas_;
  const size_t weights_;         // tensors that are no statistics
  std::vector<double> own_;      // replica after replica, by tensor: |d_r| of this worker's
  std::vector<double> lengths_;  // the same, of all
  std::vector<double> squares_;  // by block: of u
  std::vector<float> factors_;   // by tensor
};

}  // namespace muster::train
