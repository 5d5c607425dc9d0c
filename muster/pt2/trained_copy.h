// A copy of a .pt2 that has other weights: what was trained goes back to PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/pt2/program.h"

namespace muster::pt2 {

struct TrainedTensor {
  std::string_view name;
  std::span<const int64_t> shape;
  std::span<const std::byte> values;  // float32, contiguous
};

// Writes the entries of `original` in their order, with the bytes of these parameters and buffers
// in the place of its own; tied ones have one name here. Buffers that are not given stay as they
// are. Errors (kJob) call the file `name`: a tensor that it does not have or has in another shape,
// a parameter that is not given. Neither syncs nor closes.
Status write_trained_copy(WritableFile& file, const File& original, const std::string& name,
                          std::span<const TrainedTensor> tensors);

}  // namespace muster::pt2
