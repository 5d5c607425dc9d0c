// A data set whose samples are decoded when they are read: opening it checks what is cheap to
// check, and a damaged image shows only when it is its turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "muster/base/check.h"
#include "muster/base/hash.h"
#include "muster/data/dataset.h"

namespace muster::data {

class DecodingDataset : public Dataset {
 public:
  // Writes a sample as read() does. Errors (kData, kIo) name the file or key.
  virtual Status try_read(uint64_t index, std::byte* input, std::byte* target) const = 0;
  // One by one, up to the first error.
  Status read_all(std::span<const uint64_t> samples, std::byte* inputs, std::byte* targets,
                  const KeepWaiting& /*keep_waiting*/) const final {
    const size_t input_bytes = schema().input_bytes();
    const size_t target_bytes = schema().target_bytes();
    for (const uint64_t sample : samples) {
      MUSTER_RETURN_IF_ERROR(try_read(sample, inputs, targets));
      inputs += input_bytes;
      targets += target_bytes;
    }
    return {};
  }
  // Ends the program where try_read() gives an error.
  void read(uint64_t index, std::byte* input, std::byte* target) const final {
    const Status status = try_read(index, input, target);
    if (!status.ok())
      check_failed("reading a sample", __FILE__, __LINE__, status.error().message());
  }
};

// Which pieces of contents are part of a data set's hash. All of them up to 1 GiB in all; of more,
// some that together have about 256 MiB, because every worker computes the hash when it starts.
// They are the same ones everywhere. So data that is larger and differs throughout has another
// hash, but a few changed bytes need not show.
class HashedPieces {
 public:
  explicit HashedPieces(uint64_t total_bytes)
      : every_(total_bytes <= kAll ? 1 : (total_bytes - 1) / kSome + 1) {}
  // Piece number `i`.
  bool contains(uint64_t i) const { return every_ == 1 || hash64(&i, sizeof(i)) % every_ == 0; }

 private:
  static constexpr uint64_t kAll = uint64_t{1} << 30;
  static constexpr uint64_t kSome = uint64_t{256} << 20;
  const uint64_t every_;
};

}  // namespace muster::data
