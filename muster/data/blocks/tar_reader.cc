#include "muster/data/blocks/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "muster/base/text.h"

namespace muster::data {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMostText = 1 << 20;  // of a long name or a pax header
constexpr uint64_t kMostFile = uint64_t{1} << 40;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A field of characters, which ends with a zero byte or fills its place.
std::string_view field(std::span<const std::byte> header, size_t at, size_t length) {
  const auto text = text_of(header.subspan(at, length));
  return text.substr(0, text.find('\0'));
}

// Octal digits among blanks, or base 256 if the first bit is set.
bool parse_number(std::span<const std::byte> bytes, uint64_t& value) {
  value = 0;
  const auto first = static_cast<uint8_t>(bytes[0]);
  if ((first & 0x80) != 0) {
    value = first & 0x7f;
    for (const std::byte b : bytes.subspan(1)) {
      if (value >> 55 != 0) return false;
      value = value << 8 | static_cast<uint8_t>(b);
    }
    return true;
  }
  auto text = text_of(bytes);
  text = text.substr(0, text.find('\0'));
  text = trim(text);
  if (text.empty()) return true;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  return code == std::errc{} && end == text.data() + text.size();
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

// The sum of the header's bytes, its own field counting as blanks; old programs took them as
// signed.
bool checksum_matches(std::span<const std::byte> header) {
  uint64_t stored = 0;
  if (!parse_number(header.subspan(148, 8), stored)) return false;
  int64_t plain = 0;
  int64_t with_signs = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool own = i >= 148 && i < 156;
    const auto b = own ? uint8_t{' '} : static_cast<uint8_t>(header[i]);
    plain += b;
    with_signs += static_cast<int8_t>(b);
  }
  return std::cmp_equal(stored, plain) || std::cmp_equal(stored, with_signs);
}

template <typename... Args>
Error wrong(uint64_t at, fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kData, "byte {} of the tar archive: {}", with_commas(at),
               fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

struct TarReader::Header {
  bool zero = false;
  char type = '0';
  uint64_t size = 0;
  std::string name;
};

TarReader::TarReader(uint64_t size, Read read, bool must_end)
    : size_(size), read_(std::move(read)), must_end_(must_end) {}

Result<TarReader::Header> TarReader::read_header(uint64_t at) {
  if (size_ - at < kBlock) return wrong(at, "the archive is cut short; fetch it again");
  MUSTER_TRY(const auto bytes, read_(at, kBlock));
  Header header;
  if (is_zero(bytes)) {
    header.zero = true;
    return header;
  }
  if (!checksum_matches(bytes)) {
    return wrong(at,
                 "a file's header does not match its checksum; the archive is damaged, or not "
                 "tar: fetch it again");
  }
  header.type = static_cast<char>(bytes[156]);
  if (!parse_number(bytes.subspan(124, 12), header.size) || header.size > kMostFile) {
    return wrong(at, "a file's header has no valid size");
  }
  header.name = field(bytes, 0, 100);
  if (field(bytes, 257, 5) == "ustar" && static_cast<char>(bytes[262]) == '\0') {
    const auto prefix = field(bytes, 345, 155);
    if (!prefix.empty()) header.name = std::string(prefix) + "/" + header.name;
  }
  return header;
}

Result<std::string> TarReader::read_text(uint64_t at, uint64_t size) {
  if (size > kMostText) return wrong(at, "an extended header of {} bytes", with_commas(size));
  if (size > size_ - at) return wrong(at, "the archive is cut short; fetch it again");
  MUSTER_TRY(const auto bytes, read_(at, size));
  return std::string(text_of(bytes));
}

// Records "LENGTH KEY=VALUE\n", the length counting itself.
Status TarReader::read_pax(uint64_t at, uint64_t size) {
  MUSTER_TRY(const std::string text, read_text(at, size));
  for (std::string_view left = text; !left.empty();) {
    size_t length = 0;
    const auto [end, code] = std::from_chars(left.data(), left.data() + left.size(), length);
    const auto head = static_cast<size_t>(end - left.data()) + 1;
    if (code != std::errc{} || length > left.size() || head >= length || left[head - 1] != ' ' ||
        left[length - 1] != '\n') {
      return wrong(at, "a pax header is damaged");
    }
    const auto record = left.substr(head, length - head - 1);
    left.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return wrong(at, "a pax header is damaged");
    const auto key = record.substr(0, equals);
    const auto value = record.substr(equals + 1);
    if (key == "path") long_name_ = value;
    if (key.starts_with("GNU.sparse")) return wrong(at, "sparse files cannot be read");
    if (key != "size") continue;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), pax_size_);
    if (parsed.ec != std::errc{} || parsed.ptr != value.data() + value.size() ||
        pax_size_ > kMostFile) {
      return wrong(at, "a pax header has no valid size");
    }
    has_size_ = true;
  }
  return {};
}

Status TarReader::check_end(uint64_t at) {
  constexpr uint64_t kStep = 64 << 10;
  if (must_end_ && size_ - at < 2 * kBlock) {
    return wrong(at, "the archive has no end mark; it is cut short: fetch it again");
  }
  while (must_end_ && at < size_) {
    const uint64_t length = std::min(kStep, size_ - at);
    MUSTER_TRY(const auto bytes, read_(at, length));
    if (!is_zero(bytes)) {
      return wrong(at,
                   "the archive continues after its end mark; if archives were joined, write "
                   "them as files of their own");
    }
    at += length;
  }
  return {};
}

Result<bool> TarReader::next(TarEntry& entry) {
  entry.begin = at_;
  long_name_.clear();
  has_size_ = false;
  while (true) {
    if (at_ == size_) {
      if (must_end_)
        return wrong(at_, "the archive has no end mark; it is cut short: fetch it again");
      if (entry.begin != at_ && (has_size_ || !long_name_.empty())) {
        return wrong(at_, "no file follows an extended header");
      }
      return false;
    }
    MUSTER_TRY(const Header header, read_header(at_));
    if (header.zero) {
      MUSTER_RETURN_IF_ERROR(check_end(at_));
      at_ = size_;
      return false;
    }
    const bool file = header.type == '0' || header.type == '\0' || header.type == '7';
    const uint64_t data = at_ + kBlock;
    const uint64_t size = file && has_size_ ? pax_size_ : header.size;
    // Links and directories may have a size that no contents belong to.
    const bool has_data = header.type < '1' || header.type > '6';
    const uint64_t padded = has_data ? (size + kBlock - 1) / kBlock * kBlock : 0;
    if (padded > size_ - data) {
      return wrong(at_, "the archive is cut short in '{}'; fetch it again", header.name);
    }
    at_ = data + padded;
    switch (header.type) {
      case 'L': {  // GNU: the next file's name
        MUSTER_TRY(long_name_, read_text(data, size));
        long_name_.resize(std::min(long_name_.find('\0'), long_name_.size()));
        break;
      }
      case 'x':
        MUSTER_RETURN_IF_ERROR(read_pax(data, size));
        break;
      case 'K':  // GNU: the next link's target
      case 'g':  // pax: for all that follow; names and sizes are never there
        break;
      case 'S':
        return wrong(data - kBlock, "'{}' is a sparse file, which cannot be read", header.name);
      default:
        if (!file) {
          entry.begin = at_;
          long_name_.clear();
          has_size_ = false;
          break;
        }
        entry.name = long_name_.empty() ? header.name : long_name_;
        entry.data = data;
        entry.size = size;
        entry.end = at_;
        return true;
    }
  }
}

}  // namespace muster::data
