// A group whose members are processes: over TCP by the system's Gloo, and through shared memory
// between those on one host.
//
//   MUSTER_TRY(auto device, GlooDevice::open("10.0.0.7"));       // once per process
//   MUSTER_TRY(auto group, make_gloo_group({.device = device, .rendezvous = &coordinator,
//                                           .rank = 2, .names = {...}}));
//
// What is Gloo's here: the connections and the moving of bytes (its pairs and unbound buffers).
// What is ours: the meeting of members (one round trip, rendezvous.h), who lives (peer_watch.h),
// and the algorithms (gloo_collectives.cc), so that every wait can be woken, names a peer, and
// costs few messages. Files: gloo_device (the thread that moves bytes), gloo_wire (one group's
// connections), topology (which pairs have one), gloo_forming, gloo_member (failing),
// gloo_collectives, gloo_allreduce, gloo_parts; shared_plane.
//
// Threads: one per device, which is Gloo's and does the reading and most of the writing, and one
// per group (muster-watch); while a group forms, some more (muster-connect). Descriptors: for each
// group 1 per member, 1 per data connection (topology.h) and 2 more, and while it forms a few more;
// mind `ulimit -n`.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/comm/gloo_device.h"
#include "muster/comm/group.h"
#include "muster/comm/rendezvous.h"

namespace muster::comm {

// The algorithm of larger allreduces by TCP. All members must choose the same; other values than
// kBest are for tests and benchmarks. In groups of more than kAllPairs members (topology.h) it is
// always kHalving.
enum class Allreduce : uint8_t { kBest, kExchange, kHalving };

struct GlooGroupOptions {
  std::shared_ptr<GlooDevice> device;
  Rendezvous* rendezvous = nullptr;  // used only during the call
  int rank = 0;
  std::vector<std::string> names;  // of all members, by rank
  // For the exchange of addresses, unless the rendezvous has a limit of its own, and again for
  // connecting.
  Duration timeout = std::chrono::seconds(30);
  // Members on one host share memory, if they can: collectives of tag 0 go through it, in a
  // fraction of the time. In a group of several hosts, allreduce goes through shared memory within
  // each, and by TCP between one member of each. If any member says no here, or cannot, all go by
  // TCP. The bits of integer sums and maxima are the same.
  bool shared_memory = true;
  // Members with the same value are on one host. Empty: what host_id() says; else, for tests.
  // NOLINTNEXTLINE(readability-redundant-member-init): without it GCC wants it named everywhere
  std::string host = {};
  Allreduce allreduce = Allreduce::kBest;
  // Ends the forming early, from any thread. Later, the group's abort() does.
  // NOLINTNEXTLINE(readability-redundant-member-init): without it GCC wants it named everywhere
  std::stop_token stop = {};
};

// Returns once this member has all its connections. A peer that died since it gave its address
// is noticed within milliseconds, one that cannot be reached after PeerWatch::kDialTime, one that
// hangs at the deadline. If it fails, the error is a sentence and `*failure` says the same to
// programs. Its suspect is the first peer, by rank, with which no connection stood, else the first
// that was connected and silent; kNobody if the rendezvous failed, if this process was short of
// descriptors, or if another member reported the failure before this one had tried for long enough
// to know. A group of one needs neither device nor rendezvous.
Result<std::unique_ptr<Group>> make_gloo_group(const GlooGroupOptions& options,
                                               GroupFailure* failure = nullptr);

}  // namespace muster::comm
