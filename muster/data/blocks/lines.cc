#include "muster/data/blocks/lines.h"

#include <algorithm>
#include <utility>

#include "muster/base/text.h"
#include "muster/data/blocks/object_window.h"

namespace muster::data {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::vector<Extent>> cut_plain(const ObjectReader& object, ObjectWindow& window,
                                      uint64_t block_bytes,
                                      const std::function<bool(std::string_view)>& is_sample) {
  Cutter cutter(block_bytes);
  size_t least = 1;
  for (uint64_t at = 0; at < object.size;) {
    MUSTER_TRY(const auto bytes, window.from(at, least));
    const std::string_view text = text_of(bytes);
    size_t length = text.find('\n');
    if (length == std::string_view::npos) {
      if (text.size() < object.size - at) {  // the line may go on behind the window
        if (text.size() > kMostLine) {
          return Error(ErrorKind::kData, "the line at byte {} is longer than {}", with_commas(at),
                       human_bytes(static_cast<double>(kMostLine)));
        }
        least = 2 * text.size();
        continue;
      }
      length = text.size();
    }
    least = 1;
    std::string_view line = text.substr(0, length);
    const uint64_t end = std::min(at + length + 1, object.size);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_sample(line)) cutter.add(at, end);
    at = end;
  }
  return std::move(cutter).finish();
}

Result<std::vector<Extent>> cut_object(const ObjectReader& object, uint64_t block_bytes,
                                       const std::function<bool(std::string_view)>& is_sample) {
  ObjectWindow window(object);
  MUSTER_TRY(const auto start, window.from(0, kGzipStart));
  if (!is_gzipped(start)) return cut_plain(object, window, block_bytes, is_sample);
  MUSTER_TRY(const auto all, read_object(object));
  MUSTER_TRY(const BlockText text, block_text(all));
  uint32_t count = 0;
  for_each_line(text.text, [&](std::string_view line) { count += is_sample(line) ? 1 : 0; });
  if (count == 0) return std::vector<Extent>();
  return std::vector<Extent>{{.offset = 0, .length = object.size, .count = count}};
}

}  // namespace

Result<BlockText> block_text(std::span<const std::byte> block) {
  BlockText result;
  if (is_gzipped(block)) {
    MUSTER_TRY(result.owned, gunzip(block, kMostUnpacked));
    result.text = text_of(result.owned);
  } else {
    result.text = text_of(block);
  }
  return result;
}

Result<std::vector<Extent>> cut_lines(const ObjectReader& object, uint64_t block_bytes,
                                      const std::function<bool(std::string_view)>& is_sample) {
  auto extents = cut_object(object, block_bytes, is_sample);
  if (!extents.ok()) return std::move(extents).error().context("'{}'", object.name);
  return extents;
}

}  // namespace muster::data
