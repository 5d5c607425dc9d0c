#include "muster/data/blocks/object_window.h"

#include <algorithm>
#include <limits>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/data/byte_reader.h"

namespace muster::data {
namespace {

Error too_large_to_unpack(std::string_view what, uint64_t most) {
  return Error(ErrorKind::kData,
               "{} larger than {}, and a gzipped file is read as a whole; unpack it, or write "
               "smaller files",
               what, human_bytes(static_cast<double>(most)));
}

}  // namespace

Result<std::span<const std::byte>> ObjectWindow::from(uint64_t offset, size_t least) {
  MUSTER_CHECK(offset <= object_.size, "a window lies within its object");
  const uint64_t left = object_.size - offset;
  const uint64_t wanted = std::min<uint64_t>(least, left);
  if (offset < first_ || offset + wanted > first_ + bytes_.size()) {
    bytes_.resize(std::min<uint64_t>(std::max(least, usual_), left));
    first_ = offset;
    if (auto status = object_.read(offset, bytes_); !status.ok()) {
      bytes_.clear();
      return std::move(status).error();
    }
  }
  return std::span<const std::byte>(bytes_).subspan(offset - first_);
}

Result<std::span<const std::byte>> ObjectWindow::at(uint64_t offset, size_t length) {
  MUSTER_CHECK(offset <= object_.size && length <= object_.size - offset,
               "a window lies within its object");
  MUSTER_TRY(const auto bytes, from(offset, length));
  return bytes.first(length);
}

void Cutter::add(uint64_t begin, uint64_t end) {
  if (!extents_.empty()) {
    Extent& last = extents_.back();
    if (end - last.offset <= block_bytes_ && last.count < std::numeric_limits<uint32_t>::max()) {
      last.length = end - last.offset;
      ++last.count;
      return;
    }
  }
  extents_.push_back({.offset = begin, .length = end - begin, .count = 1});
}

bool is_gzipped(std::span<const std::byte> bytes) {
  return bytes.size() >= kGzipStart && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b} &&
         bytes[2] == std::byte{8};
}

Result<std::vector<std::byte>> gunzip(std::span<const std::byte> bytes, uint64_t most) {
  MUSTER_TRY(auto reader, ByteReader::from_memory(bytes, "gzipped contents"));
  std::vector<std::byte> all;
  while (true) {
    const size_t before = all.size();
    if (before > most) return too_large_to_unpack("unpacked, it is", most);
    const auto room = std::min<uint64_t>(std::max<uint64_t>(2 * before, 64 << 10), most + 1);
    all.reserve(room);  // exactly: resize() alone would take more
    all.resize(room);
    MUSTER_TRY(const size_t got, reader.read(std::span(all).subspan(before)));
    if (before + got < all.size()) {
      all.resize(before + got);
      return all;
    }
  }
}

Result<std::vector<std::byte>> read_object(const ObjectReader& object) {
  if (object.size > kMostUnpacked) return too_large_to_unpack("it is", kMostUnpacked);
  std::vector<std::byte> bytes(object.size);
  MUSTER_RETURN_IF_ERROR(object.read(0, bytes));
  return bytes;
}

}  // namespace muster::data
