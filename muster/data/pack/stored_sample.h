// How packed samples are stored: all alike, and so that reading them gives the same bits again.
//
// Inputs that are pixels (Schema::pixels) are stored as bytes, a quarter of what they are in
// memory, and scaled by the same `mean` and `deviation` when they are read. Other inputs are stored
// as the floats that they are, already scaled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/data/schema.h"

namespace muster::data {

// A stored sample is its input, then its target, without gaps.
struct SampleForm {
  bool pixels = false;               // one byte for each element of the input; else a float32
  std::vector<int64_t> input_shape;  // of one sample
  bool has_classes = true;           // the target is an int64; else a float32

  size_t input_elements() const { return Schema::count(input_shape); }
  size_t input_bytes() const { return input_elements() * (pixels ? 1 : sizeof(float)); }
  size_t target_bytes() const { return has_classes ? sizeof(int64_t) : sizeof(float); }
  size_t bytes() const { return input_bytes() + target_bytes(); }
};

// From samples as a Dataset gives them to stored ones. A plain value; safe for concurrent use.
class SampleCoder {
 public:
  // `options` are those that the data set was opened with. Errors (kJob): samples of this kind
  // cannot be packed.
  static Result<SampleCoder> make(const Schema& schema, const config::SourceOptions& options);

  const SampleForm& form() const { return form_; }
  // Writes form().bytes() bytes. Error (kData): the input is not one of pixels, as the form says.
  Status encode(const std::byte* input, const std::byte* target, std::byte* to) const;

 private:
  SampleForm form_;
  double mean_ = 0;
  double deviation_ = 1;
  std::array<float, 256> values_{};  // of each byte; rising
};

}  // namespace muster::data
