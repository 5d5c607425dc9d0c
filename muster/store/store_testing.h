// What tests of stores have in common.
#pragma once

#include <string>
#include <string_view>

#include "muster/store/store.h"

namespace muster::store {

inline Result<std::string> read_text(Store& store, const Object& object, uint64_t offset,
                                     size_t length) {
  std::string text(length, '?');
  MUSTER_RETURN_IF_ERROR(store.read(object, offset, std::as_writable_bytes(std::span(text))));
  return text;
}

inline Result<std::optional<std::string>> write_text(Store& store, std::string_view address,
                                                     std::string_view text,
                                                     const WriteCondition& condition) {
  return store.write(address, std::as_bytes(std::span(text)), condition);
}

}  // namespace muster::store
