// The gradients of one step that lanes have pushed to one table of a shard, added up exactly.
//
// A gradient is rounded to a multiple of 2^-44 and added as an integer, so the sum does not depend
// on the order in which lanes came. What a lane computes does not depend on who computes it; so if
// a worker is lost and another one pushes its lanes again, a lane that is here already is left out.
// The sum becomes an update when the step is committed (TableData).
//
// Magnitudes above 512 are taken for 512: so the sum of 1,023 lanes fits into 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/isa.h"
#include "muster/base/result.h"

namespace muster::ps {

class StepSums {
 public:
  static constexpr uint32_t kMostLanes = 1023;

  explicit StepSums(size_t width, Isa isa = best_isa()) : width_(width), isa_(isa) {}

  // `gradients`: finite, width floats for each key.
  void add(uint32_t lane, double lr, std::span<const uint64_t> keys, const float* gradients);

  double lr() const { return lr_; }  // that of the step
  bool empty() const { return keys_.empty() && pushed_keys_.empty(); }
  // The keys in ascending order, and their gradients.
  void finish(std::vector<uint64_t>& keys, std::vector<float>& gradients);

  // The same bytes for the same sums.
  void save(std::string& to);
  Status load(std::string_view& from);

 private:
  void add_up();

  size_t width_;
  Isa isa_;
  double lr_ = 0;
  std::set<uint32_t> lanes_;
  std::vector<uint64_t> keys_;  // ascending
  std::vector<int64_t> sums_;
  // Of lanes that are not in the sums yet: sorting many rows at once is several times faster than
  // finding each of them in a map.
  std::vector<uint64_t> pushed_keys_;
  std::vector<float> pushed_;
};

}  // namespace muster::ps
