// Inside peer_watch: the messages that members send each other on a watch connection.
//
// All numbers are in the byte order of the machine: the members of a group must have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "muster/comm/socket.h"

namespace muster::comm {

// The first message in each direction; `length` bytes of greeting follow it.
struct HelloHeader {
  static constexpr uint32_t kMagic = 0x6f6c6c48;
  uint32_t magic = kMagic;
  int32_t rank = 0;    // of the sender
  uint64_t token = 0;  // of the member that was dialled, in both directions
  uint32_t length = 0;
  // 1: the sender waits to be dialled by this member. The connection only shows whether the member
  // is alive, and is closed once the real one exists.
  uint32_t probe = 0;
};

// Every message after the hello; `length` bytes of text follow it.
enum class FrameType : uint8_t { kLeaving = 1, kFailed = 2, kQuestion = 3, kAnswer = 4 };
struct FrameHeader {
  static constexpr uint16_t kMagic = 0x4d47;
  uint16_t magic = kMagic;
  FrameType type = FrameType::kLeaving;
  uint8_t kind = 0;     // kFailed: the FailureKind
  int32_t origin = 0;   // kFailed: GroupFailure::origin
  uint32_t number = 0;  // of a question, repeated in its answer
  uint32_t length = 0;
};

inline constexpr size_t kLongestGreeting = 4096;
inline constexpr size_t kLongestText = 4096;

template <typename Header>
std::string encode(const Header& header, std::string_view rest) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(rest);
  return bytes;
}

// False if there are fewer bytes than a header has.
template <typename Header>
bool decode(const std::string& bytes, Header& header) {
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return true;
}

// Appends what can be read without waiting, until `into` has `most` bytes. False: the other side
// has closed the connection, or it broke: `*error` is then the errno, if given.
bool read_up_to(const Fd& fd, std::string& into, size_t most, int* error = nullptr);

// Reads a hello without a byte of what follows it, so that nothing of an unknown sender is stored
// beyond one greeting. The sender is trusted with a greeting only if `valid` accepts its header.
enum class HelloState { kIncomplete, kComplete, kInvalid };
template <typename Valid>
HelloState read_hello(const Fd& fd, std::string& into, HelloHeader& hello, Valid valid) {
  bool open = true;
  if (into.size() < sizeof(hello)) open = read_up_to(fd, into, sizeof(hello));
  if (!decode(into, hello)) return open ? HelloState::kIncomplete : HelloState::kInvalid;
  if (hello.magic != HelloHeader::kMagic || hello.length > kLongestGreeting || !valid(hello)) {
    return HelloState::kInvalid;
  }
  const size_t all = sizeof(hello) + hello.length;
  if (into.size() < all) open = read_up_to(fd, into, all);
  if (into.size() == all) return HelloState::kComplete;
  return open ? HelloState::kIncomplete : HelloState::kInvalid;
}

// A few bytes, into a send buffer that is as good as empty: they go at once or not at all.
void write_now(const Fd& fd, std::string_view bytes);

}  // namespace muster::comm
