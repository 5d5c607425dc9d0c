// What tests of stores have in common.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "muster/store/retry.h"
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

// Passes everything on to another store. A test overrides what is to go wrong.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(Store& inner) : inner_(inner) {}
  Result<std::vector<Object>> list(std::string_view address) override {
    return inner_.list(address);
  }
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override {
    return inner_.read(object, offset, into);
  }
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override {
    return inner_.write(address, bytes, condition);
  }
  Status remove(std::string_view address) override { return inner_.remove(address); }

 private:
  Store& inner_;
};

// For a store that fails in a test: it is not waited for long, and nothing is asked twice.
inline RetryOptions quick_retries() {
  RetryOptions retries;
  retries.hedges = 0;
  retries.backoff.first = std::chrono::milliseconds(10);
  retries.backoff.most = std::chrono::milliseconds(100);
  return retries;
}

}  // namespace muster::store
