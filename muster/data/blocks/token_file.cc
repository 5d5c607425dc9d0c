#include "muster/data/blocks/token_file.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "muster/base/text.h"

namespace muster::data {
namespace {

using Bytes = std::span<const std::byte>;

template <typename T>
T load(Bytes bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What follows 'KEY': in the header of a .npy file, which is a Python dict.
std::string_view entry(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{0}{1}{0}:", quote, key);
    const size_t at = header.find(quoted);
    if (at != std::string_view::npos) return trim(header.substr(at + quoted.size()));
  }
  return {};
}

// The product of "(3, 4)"; false: it is no shape.
bool shape_product(std::string_view text, uint64_t& product) {
  if (!text.starts_with('(')) return false;
  text.remove_prefix(1);
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return false;
  product = 1;
  for (const auto& part : split(text.substr(0, end), ',')) {
    const auto digits = trim(part);
    if (digits.empty()) continue;
    if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      return false;
    }
    if (__builtin_mul_overflow(product, std::stoull(std::string(digits)), &product)) return false;
  }
  return true;
}

template <typename T>
uint64_t largest_of(Bytes bytes) {
  T most = 0;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    most = std::max(most, load<T>(bytes, at));
  }
  return most;
}

}  // namespace

Result<Tokens> read_npy(Bytes file) {
  const auto damaged = [](std::string_view why) {
    return Error(ErrorKind::kData, "not a NumPy file that can be read: {}", why);
  };
  if (file.size() < 10 || !text_of(file).starts_with("\x93NUMPY")) {
    return damaged("it does not start with \\x93NUMPY");
  }
  const bool long_header = static_cast<uint8_t>(file[6]) >= 2;
  const size_t start = long_header ? 12 : 10;
  if (file.size() < start) return damaged("it is cut short");
  const size_t length = long_header ? load<uint32_t>(file, 8) : load<uint16_t>(file, 8);
  if (length > file.size() - start) return damaged("it is cut short in its header");
  const auto header = text_of(file.subspan(start, length));
  const auto type = entry(header, "descr");
  Tokens tokens;
  if (type.size() < 5 || (type[1] != '<' && type[1] != '|') || (type[2] != 'u' && type[2] != 'i') ||
      std::string_view("1248").find(type[3]) == std::string_view::npos || type[4] != type[0]) {
    return damaged(
        fmt::format("its elements are {}; save them as little-endian integers, such as "
                    "numpy.uint16",
                    type.substr(0, std::min<size_t>(type.size(), 8))));
  }
  tokens.width = static_cast<size_t>(type[3] - '0');
  if (!entry(header, "fortran_order").starts_with("False")) {
    return damaged("it is in Fortran's order; save numpy.ascontiguousarray of it");
  }
  uint64_t count = 0;
  if (!shape_product(entry(header, "shape"), count)) return damaged("its header has no shape");
  tokens.bytes = file.subspan(start + length);
  if (count > tokens.bytes.size() || count * tokens.width != tokens.bytes.size()) {
    return damaged(fmt::format("its header promises {} tokens and {} bytes follow; fetch it again",
                               with_commas(count), with_commas(tokens.bytes.size())));
  }
  return tokens;
}

// .idx: "MMIDIDX\0\0", version (8 bytes), type (1), sequences (8), documents (8), then a length (4)
// and a position in bytes (8) of each sequence, and the documents' first sequences (8 each).
Result<Tokens> read_megatron(Bytes bin, Bytes idx) {
  constexpr size_t kHead = 34;
  const auto damaged = [](std::string_view why) {
    return Error(ErrorKind::kData, "the index (.idx) cannot be used: {}", why);
  };
  if (idx.size() < kHead || !text_of(idx).starts_with(std::string_view("MMIDIDX\0\0", 9))) {
    return damaged("it does not start with MMIDIDX");
  }
  if (load<uint64_t>(idx, 9) != 1) return damaged("it is of another version than 1");
  Tokens tokens;
  tokens.bytes = bin;
  switch (const auto code = load<uint8_t>(idx, 17)) {
    case 1:
    case 2:
      tokens.width = 1;
      break;
    case 3:
    case 8:
      tokens.width = 2;
      break;
    case 4:
      tokens.width = 4;
      break;
    case 5:
      tokens.width = 8;
      break;
    default:
      return damaged(fmt::format("its elements have the type {}, which are no integers", code));
  }
  const auto sequences = load<uint64_t>(idx, 18);
  const auto documents = load<uint64_t>(idx, 26);
  if (sequences > idx.size() / 12 || documents > idx.size() / 8 ||
      idx.size() < kHead + 12 * sequences + 8 * documents) {
    return damaged("it is cut short");
  }
  uint64_t position = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    const auto length = load<int32_t>(idx, kHead + 4 * i);
    const auto place = load<int64_t>(idx, kHead + 4 * sequences + 8 * i);
    if (length < 0 || std::cmp_not_equal(place, position)) {
      return damaged("its sequences do not follow each other in the .bin file");
    }
    position += static_cast<uint64_t>(length) * tokens.width;
  }
  if (position != bin.size()) {
    return damaged(fmt::format("it describes {} bytes, but the .bin file has {}; fetch both again",
                               with_commas(position), with_commas(bin.size())));
  }
  return tokens;
}

Result<Tokens> read_plain_tokens(Bytes file, size_t width) {
  // llm.c: 256 numbers of 4 bytes: 20240520, version, count, zeros; then tokens of 2 bytes.
  constexpr size_t kHead = 1024;
  if (file.size() > kHead && load<uint32_t>(file, 0) == 20240520 && load<uint32_t>(file, 4) == 1 &&
      file.size() == kHead + uint64_t{2} * load<uint32_t>(file, 8)) {
    return Tokens{file.subspan(kHead), 2};
  }
  if (file.size() % width != 0) {
    return Error(ErrorKind::kData,
                 "{} bytes are no multiple of {}, the size of a token; set `type` in `args`, or "
                 "fetch the file again",
                 with_commas(file.size()), width);
  }
  return Tokens{file, width};
}

uint64_t largest_token(const Tokens& tokens) {
  switch (tokens.width) {
    case 1:
      return largest_of<uint8_t>(tokens.bytes);
    case 2:
      return largest_of<uint16_t>(tokens.bytes);
    case 4:
      return largest_of<uint32_t>(tokens.bytes);
    default:
      return largest_of<uint64_t>(tokens.bytes);
  }
}

}  // namespace muster::data
