// What the formats of lines share: blocks are ranges of whole lines, or a gzipped file as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"
#include "muster/data/blocks/block_format.h"

namespace muster::data {

// A longer line is taken for a file that has none.
inline constexpr size_t kMostLine = size_t{64} << 20;

// The text of a block, unpacked if that is gzipped.
struct BlockText {
  std::vector<std::byte> owned;  // what `text` lies in, unless that is the block itself
  std::string_view text;
};
Result<BlockText> block_text(std::span<const std::byte> block);

// Cuts at line ends; is_sample says which lines, without their ends, are samples.
Result<std::vector<Extent>> cut_lines(const ObjectReader& object, uint64_t block_bytes,
                                      const std::function<bool(std::string_view)>& is_sample);

// Calls visit(line) for each line, without its end (LF or CRLF).
template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line);
  }
}

}  // namespace muster::data
