// A file read once, from front to back, gunzipped on the way if it is gzipped. Which it is shows in
// its first bytes, not in its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "muster/base/result.h"

namespace muster::data {

// Not safe for concurrent use.
class ByteReader {
 public:
  // A regular file, plain or gzipped (also of several members).
  static Result<ByteReader> open(const std::string& path);
  // The same from memory, which must outlive the reader; `name` stands for the path in errors.
  static Result<ByteReader> from_memory(std::span<const std::byte> bytes, std::string name);
  ~ByteReader();
  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;

  // Fills `into`; gives fewer bytes only at the end of the file. Errors: the file cannot be read
  // (kIo); it is gzipped and damaged, cut short, or goes on after its end (kData). The checksum at
  // the end of a gzipped file has been checked once this has returned fewer bytes than asked for.
  Result<size_t> read(std::span<std::byte> into);

  // No more than this many bytes are still to come. Exact for a plain file; for a gzipped one what
  // the format can pack into its size at most. A header that claims more is lying, and nobody needs
  // to allocate memory to find out.
  uint64_t at_most() const;

  // Everything that is left.
  Result<std::string> read_all();

  const std::string& name() const;

 private:
  struct State;
  explicit ByteReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace muster::data
