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
#include "muster/comm/two_level_group.h"

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
// members each. kSites: at as many sites, as groups of two levels.
enum class Backend { kLocal, kGloo, kShared, kHosts, kSites };

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
    case Backend::kSites:
      return "Sites";
  }
  return "?";
}

// The ranks go round the hosts or sites, so that the members of one are not neighbours.
inline int test_sites(int size) { return std::max(2, (size + 2) / 3); }
inline std::string test_host(int rank, int size) {
  return "host-" + std::to_string(rank % test_sites(size));
}

inline std::vector<std::unique_ptr<Group>> make_groups(Backend backend, int size,
                                                       std::shared_ptr<GlooDevice> device = nullptr,
                                                       Allreduce allreduce = Allreduce::kBest);

// This member's group of `groups`, which are ranks in `all`, formed through it; null: it is alone,
// or in none.
inline std::shared_ptr<Group> form_through(Group& all, const std::vector<std::vector<int>>& groups,
                                           const std::shared_ptr<GlooDevice>& device) {
  constexpr auto kTimeout = std::chrono::seconds(30);
  for (const auto& members : groups) {
    const auto self = std::ranges::find(members, all.rank());
    if (members.size() < 2 || self == members.end()) continue;
    GroupRendezvous rendezvous(all, members, kTimeout);
    std::vector<std::string> names;
    for (const int member : members) names.push_back(all.name(member));
    auto group = make_gloo_group({.device = device,
                                  .rendezvous = &rendezvous,
                                  .rank = static_cast<int>(self - members.begin()),
                                  .names = std::move(names)});
    MUSTER_CHECK(group.ok(), group.ok() ? "" : group.error().message());
    return *std::move(group);
  }
  const Status status = GroupRendezvous::attend(all, kTimeout);
  MUSTER_CHECK(status.ok(), status.ok() ? "" : status.error().message());
  return nullptr;
}

// What the members of groups of two levels are made of.
inline std::vector<TwoLevels> make_levels(int size, const std::shared_ptr<GlooDevice>& device) {
  auto groups = make_groups(Backend::kShared, size, device);
  std::vector<std::vector<int>> sites(static_cast<size_t>(std::min(size, test_sites(size))));
  std::vector<int> leaders;
  for (int r = 0; r < size; ++r) {
    auto& site = sites[static_cast<size_t>(r) % sites.size()];
    if (site.empty()) leaders.push_back(r);
    site.push_back(r);
  }
  std::vector<TwoLevels> levels(groups.size());
  on_all(size, [&](int r) {
    auto& own = levels[static_cast<size_t>(r)];
    own.all = std::move(groups[static_cast<size_t>(r)]);
    own.site = form_through(*own.all, sites, device);
    own.leaders = form_through(*own.all, {leaders}, device);
    own.sites = sites;
  });
  return levels;
}

// All members of a new group; on a device of their own unless one is given.
inline std::vector<std::unique_ptr<Group>> make_groups(Backend backend, int size,
                                                       std::shared_ptr<GlooDevice> device,
                                                       Allreduce allreduce) {
  std::vector<std::unique_ptr<Group>> groups(static_cast<size_t>(size));
  if (backend == Backend::kLocal) {
    auto hub = LocalHub::create(test_names(size));
    for (int r = 0; r < size; ++r) groups[static_cast<size_t>(r)] = *hub->join(r);
    return groups;
  }
  if (device == nullptr) device = *GlooDevice::open("127.0.0.1");
  if (backend == Backend::kSites) {
    auto levels = make_levels(size, device);
    for (size_t r = 0; r < groups.size(); ++r) {
      groups[r] = make_two_level_group(std::move(levels[r]));
    }
    return groups;
  }
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
