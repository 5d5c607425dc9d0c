// A file in memory by mmap, read only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "muster/base/result.h"

namespace muster {

// Owns the mapping. The file must not be made shorter while it is mapped: reading would end the
// process. (Removing it does no harm.)
class MappedFile {
 public:
  // A regular file that is not empty. Errors: kIo, kData.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  // No read-ahead: for samples that are read in random order.
  void expect_random_reads() const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace muster
