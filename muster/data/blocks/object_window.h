// What formats share that cut objects into blocks: a window over an object that is read from front
// to back, and the rule where a block ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/blocks/block_format.h"

namespace muster::data {

// A stretch of an object in memory. Objects may be remote, so small reads that follow each other
// are served from one large one, and what is stepped over by more than a window is not read.
// Not safe for concurrent use.
class ObjectWindow {
 public:
  // Long enough that the time of a request does not count.
  static constexpr size_t kUsual = size_t{4} << 20;
  // `object` must outlive the window.
  explicit ObjectWindow(const ObjectReader& object, size_t usual = kUsual)
      : object_(object), usual_(usual) {}

  // Bytes [offset, offset + length), which lie within the object; valid until the next call.
  Result<std::span<const std::byte>> at(uint64_t offset, size_t length);
  // As many bytes from `offset` on as are at hand, at least `least` or up to the object's end.
  Result<std::span<const std::byte>> from(uint64_t offset, size_t least);

  uint64_t size() const { return object_.size; }
  const std::string& name() const { return object_.name; }

 private:
  const ObjectReader& object_;
  const size_t usual_;
  std::vector<std::byte> bytes_;
  uint64_t first_ = 0;
};

// Collects samples into blocks. A block ends before the sample that would make it longer than
// `block_bytes`, so only a block of one sample can be longer.
class Cutter {
 public:
  explicit Cutter(uint64_t block_bytes) : block_bytes_(block_bytes) {}
  // The next sample: bytes [begin, end), behind all samples before it.
  void add(uint64_t begin, uint64_t end);
  std::vector<Extent> finish() && { return std::move(extents_); }

 private:
  const uint64_t block_bytes_;
  std::vector<Extent> extents_;
};

// Whether they begin as a gzip file does, which shows in kGzipStart bytes.
bool is_gzipped(std::span<const std::byte> bytes);
inline constexpr size_t kGzipStart = 3;
// The contents of gzipped bytes. Errors (kData): damaged, or larger than `most` when unpacked.
Result<std::vector<std::byte>> gunzip(std::span<const std::byte> bytes, uint64_t most);
// What a gzipped object or block may hold at most. It is unpacked as a whole, by each thread that
// indexes or decodes one.
inline constexpr uint64_t kMostUnpacked = uint64_t{1} << 30;

// The whole object. Errors (kData): larger than kMostUnpacked, so that it cannot be unpacked.
Result<std::vector<std::byte>> read_object(const ObjectReader& object);

}  // namespace muster::data
