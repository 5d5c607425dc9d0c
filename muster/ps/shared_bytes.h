// Bytes that several hold without copying them: a push stays in the buffer in which it came until
// all of its followers have confirmed it, and rows go from the table to the connection.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace muster::ps {

// Like a shared pointer to a string_view; null is not the same as empty.
class Bytes {
 public:
  Bytes() = default;
  Bytes(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as of a pointer
  explicit Bytes(std::string bytes) {
    auto owner = std::make_shared<const std::string>(std::move(bytes));
    view_ = *owner;
    owner_ = std::move(owner);
  }
  // So many values, which write(T* to) puts there.
  template <typename T, typename Write>
  static Bytes filled(size_t count, Write write) {
    auto owner = std::make_shared_for_overwrite<T[]>(count);
    write(owner.get());
    const std::string_view view(reinterpret_cast<const char*>(owner.get()), count * sizeof(T));
    return {std::move(owner), view};
  }
  // `owner` keeps what `view` shows, and is not null.
  Bytes(std::shared_ptr<const void> owner, std::string_view view)
      : owner_(std::move(owner)), view_(view) {}

  std::string_view operator*() const { return view_; }
  const std::string_view* operator->() const { return &view_; }
  explicit operator bool() const { return owner_ != nullptr; }
  // A part of it, which `view` shows, with the same owner.
  Bytes part(std::string_view view) const { return {owner_, view}; }

 private:
  std::shared_ptr<const void> owner_;
  std::string_view view_;
};

// Bytes of one message, at most: gRPC writes 32 bits for the size of a batch, in which others may
// be before it (net/stream.cc). Who makes larger ones says so in a sentence, instead of sending
// them.
inline constexpr size_t kLargestMessage = (size_t{4} << 30) - (size_t{32} << 20);

// What is sent as one message.
struct Packet {
  Packet(std::string bytes) : head(std::move(bytes)) {}  // NOLINT(google-explicit-constructor)
  Packet(std::string bytes, Bytes behind) : head(std::move(bytes)), body(std::move(behind)) {}

  size_t size() const { return head.size() + body->size(); }
  std::string flat() const { return head + std::string(*body); }

  std::string head;
  Bytes body;  // follows it; may be null
};

}  // namespace muster::ps
