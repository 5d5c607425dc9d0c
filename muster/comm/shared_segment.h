// Memory that the members of a group on one machine share: each has a segment of its own, which the
// others map.
//
// It is made for one group and goes with it, so a member that was stopped for a while and wakes up
// late can only scribble on memory that nobody looks at any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muster/base/clock.h"
#include "muster/comm/call.h"
#include "muster/comm/socket.h"

namespace muster::comm {

// Which host this process is on: processes with the same value can share memory. It is made of the
// running kernel's id and of what /dev/shm is, which a container has for itself: two containers on
// one machine are two hosts.
std::string host_id();

class SharedSegment {
 public:
  // A number on a cache line of its own, as others look at it all the time.
  struct alignas(64) Counter {
    std::atomic<uint32_t> value{0};
  };
  // At the beginning of each segment. Counters only grow, modulo 2^32.
  struct Header {
    uint64_t token = 0;
    Counter bell;      // rung by others when there is something new to look at
    Counter sleeping;  // 1 while the owner waits for the bell
    Counter left;      // 1 once the owner has left in good order: its counters will not move
    Counter staged, reduced, copied;  // blocks; see shared_plane.h
    Call calls[2];  // what the owner is doing: by the parity of blocks staged before it
  };

  // A new segment with `bytes` of data; none if this system does not give shared memory.
  static std::unique_ptr<SharedSegment> create(size_t bytes);
  // The one that `address` tells of, if it is on this machine and we may; the same `bytes`.
  static std::unique_ptr<SharedSegment> open(std::string_view address, size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Text without line ends. For created ones.
  std::string address() const;

  Header& header() { return *static_cast<Header*>(memory_); }
  std::byte* data() { return static_cast<std::byte*>(memory_) + kDataOffset; }

  // Rings the owner's bell. Anyone.
  void ring();
  // For the owner: waits until the bell has been rung since it read `seen` from it, or the
  // deadline.
  void wait_bell(uint32_t seen, Moment deadline);

 private:
  static constexpr size_t kDataOffset = 4096;
  SharedSegment(Fd fd, void* memory, size_t length);

  const Fd fd_;  // of created ones: others open it through /proc
  void* const memory_;
  const size_t length_;
};

}  // namespace muster::comm
