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
#include <unordered_map>
#include <vector>

#include "muster/base/result.h"

namespace muster::ps {

class StepSums {
 public:
  static constexpr uint32_t kMostLanes = 1023;

  explicit StepSums(size_t width) : width_(width) {}

  // `gradients`: finite, width floats for each key.
  void add(uint32_t lane, double lr, std::span<const uint64_t> keys, const float* gradients);

  double lr() const { return lr_; }  // that of the step
  size_t rows() const { return keys_.size(); }
  // The keys in ascending order, and their gradients.
  void finish(std::vector<uint64_t>& keys, std::vector<float>& gradients) const;

  // The same bytes for the same sums.
  void save(std::string& to) const;
  Status load(std::string_view& from);

 private:
  std::vector<uint32_t> ascending() const;  // places of keys

  size_t width_;
  double lr_ = 0;
  std::set<uint32_t> lanes_;
  std::unordered_map<uint64_t, uint32_t> places_;  // by key
  std::vector<uint64_t> keys_;
  std::vector<int64_t> sums_;
};

}  // namespace muster::ps
