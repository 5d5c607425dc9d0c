// Rows that a net looks up by key, apart from its parameters: tables that grow with what is seen in
// the data, and may be on other machines (muster/ps).
//
// A lane reads the rows of its batch as they were at the beginning of the step, or some steps
// before (tables.staleness), and adds the gradient of each. Rows change when the step is committed.
// So a row source gives the same bits whoever computes the lane, and adding the same lane's
// gradient again has no effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::model {

// Safe for concurrent use. Calls throw if they cannot be carried out.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Floats of a row.
  virtual int64_t width() const = 0;
  // rows[i * width() ...] of keys[i]: those that this lane of the step is trained with; or, for
  // kNoLane, as they are after so many steps. Waits until what they need is committed.
  static constexpr int kNoLane = -1;
  virtual void read(int64_t step, int lane, std::span<const uint64_t> keys, float* rows) = 0;
  // The gradients of a lane's rows, all of them in one call. The keys ascend.
  virtual void add(int64_t step, int lane, std::span<const uint64_t> keys,
                   const float* gradients) = 0;
};

}  // namespace muster::model
