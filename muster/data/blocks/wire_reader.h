// The wire format of Protocol Buffers, as far as reading a message by hand needs it. The library
// would do, but two versions of it in one process (ours, libtorch's, a plugin's) do not mix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace muster::data {

// Walks over the fields of one message. `bytes` must outlive the reader.
class WireReader {
 public:
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  explicit WireReader(std::span<const std::byte> bytes) : left_(bytes) {}

  // Steps to the next field. False at the end of the message, and where bytes follow that are no
  // field: then damaged() is true.
  bool next();
  bool damaged() const { return damaged_; }

  uint32_t field() const { return field_; }
  Type type() const { return type_; }
  // Of kVarint, kFixed64 and kFixed32; a float as its bits.
  uint64_t number() const { return number_; }
  // Of kBytes: a string, a message, packed numbers.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

  // A varint at the front of `bytes`, which loses it; false if there is none.
  static bool take_varint(std::span<const std::byte>& bytes, uint64_t& value);

 private:
  bool fail() {
    damaged_ = true;
    return false;
  }

  std::span<const std::byte> left_;
  uint32_t field_ = 0;
  Type type_ = Type::kVarint;
  uint64_t number_ = 0;
  std::span<const std::byte> bytes_;
  bool damaged_ = false;
};

inline bool WireReader::take_varint(std::span<const std::byte>& bytes, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto b = static_cast<uint8_t>(bytes[i]);
    value |= uint64_t{b & 0x7fU} << (7 * i);
    if ((b & 0x80) == 0) {
      bytes = bytes.subspan(i + 1);
      return i < 9 || b <= 1;  // the tenth byte has one bit
    }
  }
  return false;
}

inline bool WireReader::next() {
  if (left_.empty() || damaged_) return false;
  uint64_t tag = 0;
  if (!take_varint(left_, tag)) return fail();
  if (tag >> 3 == 0 || tag >> 32 != 0) return fail();
  field_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<Type>(tag & 7);
  number_ = 0;
  bytes_ = {};
  size_t width = 0;
  switch (type_) {
    case Type::kVarint:
      return take_varint(left_, number_) || fail();
    case Type::kBytes: {
      uint64_t length = 0;
      if (!take_varint(left_, length) || length > left_.size()) return fail();
      bytes_ = left_.first(length);
      left_ = left_.subspan(length);
      return true;
    }
    case Type::kFixed64:
      width = 8;
      break;
    case Type::kFixed32:
      width = 4;
      break;
    default:  // groups, which nothing that is read here has
      return fail();
  }
  if (left_.size() < width) return fail();
  std::memcpy(&number_, left_.data(), width);
  left_ = left_.subspan(width);
  return true;
}

}  // namespace muster::data
