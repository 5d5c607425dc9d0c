// Walks over the files of a tar archive: ustar, with the extensions of pax (path, size) and GNU
// (long names, sizes in base 256).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "muster/base/result.h"

namespace muster::data {

struct TarEntry {
  std::string name;
  uint64_t begin = 0;  // of its header, and of extended headers before that
  uint64_t data = 0;   // of its contents
  uint64_t size = 0;   // of its contents
  uint64_t end = 0;    // behind its contents, padded to 512 bytes
};

// Reads headers only. Not safe for concurrent use.
class TarReader {
 public:
  // Bytes [offset, offset + length), which lie below `size`; valid until the next call.
  using Read = std::function<Result<std::span<const std::byte>>(uint64_t offset, size_t length)>;
  // must_end: the archive must have its end mark, two blocks of zeros, and nothing but zeros behind
  // it: without that, an archive that is cut short between two files could not be told.
  TarReader(uint64_t size, Read read, bool must_end);

  // The next regular file; what is none (directories, links) is stepped over. False at the end.
  // Errors (kData) name the byte.
  Result<bool> next(TarEntry& entry);

 private:
  struct Header;
  Result<Header> read_header(uint64_t at);
  Result<std::string> read_text(uint64_t at, uint64_t size);
  Status read_pax(uint64_t at, uint64_t size);
  Status check_end(uint64_t at);

  const uint64_t size_;
  const Read read_;
  const bool must_end_;
  uint64_t at_ = 0;
  // From extended headers, for the next entry.
  std::string long_name_;
  bool has_size_ = false;
  uint64_t pax_size_ = 0;
};

}  // namespace muster::data
