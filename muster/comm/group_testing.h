// What the tests of groups share: members as threads, over any backend.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "muster/base/check.h"
#include "muster/comm/gloo_group.h"
#include "muster/comm/local_group.h"
#include "muster/comm/rendezvous.h"

namespace muster::comm {

inline std::vector<std::string> test_names(int size) {
  std::vector<std::string> names;
  for (int r = 0; r < size; ++r) {
    names.push_back("worker-" + (r < 26 ? std::string(1, char('a' + r)) : std::to_string(r)));
  }
  return names;
}

// Runs body(rank) on one thread per member and joins them.
inline void on_all(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) threads.emplace_back([&body, r] { body(r); });
  for (auto& t : threads) t.join();
}

// kShared: Gloo's, with shared memory. kHosts: as if on two or more hosts, of up to three
// members each.
enum class Backend { kLocal, kGloo, kShared, kHosts };

inline std::string backend_name(Backend backend) {
  switch (backend) {
    case Backend::kLocal:
      return "Local";
    case Backend::kGloo:
      return "Gloo";
    case Backend::kShared:
      return "Shared";
    case Backend::kHosts:
      return "Hosts";
  }
  return "?";
}

// The ranks go round the hosts, so that the members of one are not neighbours.
inline std::string test_host(int rank, int size) {
  return "host-" + std::to_string(rank % std::max(2, (size + 2) / 3));
}

// All members of a new group; on a device of their own unless one is given.
inline std::vector<std::unique_ptr<Group>> make_groups(Backend backend, int size,
                                                       std::shared_ptr<GlooDevice> device = nullptr,
                                                       Allreduce allreduce = Allreduce::kBest) {
  std::vector<std::unique_ptr<Group>> groups(static_cast<size_t>(size));
  if (backend == Backend::kLocal) {
    auto hub = LocalHub::create(test_names(size));
    for (int r = 0; r < size; ++r) groups[static_cast<size_t>(r)] = *hub->join(r);
    return groups;
  }
  if (device == nullptr) device = *GlooDevice::open("127.0.0.1");
  MemoryRendezvous rendezvous;
  on_all(size, [&](int r) {
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = &rendezvous,
                                  .rank = r,
                                  .names = test_names(size),
                                  .timeout = std::chrono::seconds(30),
                                  .shared_memory = backend != Backend::kGloo,
                                  .host = backend == Backend::kHosts ? test_host(r, size) : "",
                                  .allreduce = allreduce});
    MUSTER_CHECK(group.ok(), group.ok() ? "" : group.error().message());
    groups[static_cast<size_t>(r)] = *std::move(group);
  });
  return groups;
}

}  // namespace muster::comm
