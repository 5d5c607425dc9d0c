// How to pack integers for the network (exact/packed_ints.h): fast, or small. Small is less to send
// and more to compute, so which is better depends on the links; it is found by trying both.
//
// All members of a group have the same operations in the same order, so all try the same way in the
// same operation: what a trial takes then follows from everybody's way. Of kEvery operations the
// first two are trials. Each member chooses for itself in the others: what it sends can be read
// either way, and the integers are the same.
//
// Not safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/exact/packed_ints.h"

namespace muster::comm {

class PackingChoice {
 public:
  // Operations with fewer values take as long as a message takes; they are packed fast.
  static constexpr size_t kLeastValues = 16 << 10;
  static constexpr int64_t kEvery = 32;

  // For the next operation, of so many values.
  exact::Packing next(size_t values);
  // That operation has taken so long.
  void note(size_t values, double seconds);

 private:
  bool is_trial() const { return number_ % kEvery < 2; }
  double& mean(exact::Packing packing) {
    return packing == exact::Packing::kSmall ? small_ : fast_;
  }

  int64_t number_ = 0;  // of the operation, of those that are large enough
  // Seconds for a value, in trials; 0: there was none yet.
  double fast_ = 0;
  double small_ = 0;
};

}  // namespace muster::comm
