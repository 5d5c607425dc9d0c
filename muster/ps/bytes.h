// Plain values in strings of bytes, as they lie in memory: little-endian, without padding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "muster/base/hash.h"

namespace muster::ps {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void append(std::string& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// False: there are not enough bytes.
template <typename T>
[[nodiscard]] bool take(std::string_view& from, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.size() < sizeof(value)) return false;
  from.copy(reinterpret_cast<char*>(&value), sizeof(value));
  from.remove_prefix(sizeof(value));
  return true;
}

// How many, and all of them.
template <typename T>
void append_all(std::string& to, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  append(to, uint64_t{values.size()});
  to.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
[[nodiscard]] bool take_all(std::string_view& from, std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  uint64_t count = 0;
  if (!take(from, count) || count > from.size() / sizeof(T)) return false;
  values.resize(count);
  from.copy(reinterpret_cast<char*>(values.data()), count * sizeof(T));
  from.remove_prefix(count * sizeof(T));
  return true;
}

// Of a message that begins with its checksum: of all that follows that.
inline uint64_t checksum_of(std::string_view message) {
  const auto rest = message.substr(sizeof(uint64_t));
  return hash64(rest.data(), rest.size());
}

}  // namespace muster::ps
