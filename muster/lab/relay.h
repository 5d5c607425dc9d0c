// Delay and loss: passes packets between a host and the switch, holding back or dropping those that
// the host sends. (Linux has netem for this, but not every kernel has netem.)
//
// It reads and writes file descriptors that give a whole packet with each read: tap devices, or
// pairs of datagram sockets in tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::lab {

// May be changed at any time, also from another process if it is in shared memory.
struct RelayControl {
  std::atomic<int64_t> delay_us{0};
  std::atomic<uint32_t> loss_ppm{0};                         // packets of a million
  static_assert(std::atomic<int64_t>::is_always_lock_free);  // or two processes could not share it
};

struct RelayedLink {
  int host = -1;  // non-blocking; not owned
  int hub = -1;
  RelayControl* control = nullptr;
};

// A link holds back at most so much; what comes on top is lost, as in a router.
inline constexpr size_t kMostHeldBack = 64 << 20;

// Returns when `stop` becomes readable or its other end is closed. Which packets are lost follows
// from `seed`. One thread.
void relay(const std::vector<RelayedLink>& links, int stop, uint64_t seed = 1);

}  // namespace muster::lab
