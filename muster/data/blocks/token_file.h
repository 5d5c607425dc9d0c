// Files of token ids: plain integers, NumPy's .npy, llm.c's .bin with a header, Megatron's .bin
// with an .idx beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "muster/base/result.h"

namespace muster::data {

// Little-endian integers of 1, 2, 4 or 8 bytes, one after the other.
struct Tokens {
  std::span<const std::byte> bytes;
  size_t width = 2;
  uint64_t count() const { return bytes.size() / width; }
};

// The integers of a .npy file, of any shape. Errors (kData): damaged, not integers, in Fortran's
// order, big-endian.
Result<Tokens> read_npy(std::span<const std::byte> file);
// The tokens of Megatron's `bin`, as `idx` describes it. Errors (kData): one of them is damaged, or
// they do not belong together.
Result<Tokens> read_megatron(std::span<const std::byte> bin, std::span<const std::byte> idx);
// Any other file: llm.c's if its header says so, otherwise plain integers of `width` bytes. Errors
// (kData): the length is no multiple of the width.
Result<Tokens> read_plain_tokens(std::span<const std::byte> file, size_t width);

// The largest, as unsigned numbers: what is negative is very large.
uint64_t largest_token(const Tokens& tokens);

}  // namespace muster::data
