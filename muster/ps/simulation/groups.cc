#include "muster/ps/simulation/groups.h"

#include <algorithm>

#include "muster/ps/simulation/cluster.h"

namespace muster::ps::simulation {

using namespace std::chrono_literals;

namespace {
constexpr Duration kPatience = 80ms;  // with one that is silent
constexpr Duration kRejoin = 100ms;   // after one has come back
}  // namespace

Groups::Groups(Cluster& cluster) : cluster_(cluster) {
  cluster_.world().after(1ms, [this] { watch(); });
}

bool Groups::takes_part(const ClientProcess& client) const {
  const Moment now = cluster_.world().now();
  if (!client.alive) return false;
  if (cluster_.is_suspended(client)) return now - client.paused_at < kPatience;
  return std::ranges::count(newest_.members, client.place) > 0 ||
         now - client.paused_until > kRejoin;
}

void Groups::watch() {
  auto& world = cluster_.world();
  world.after(world.between(20ms, 60ms), [this] { watch(); });
  std::vector<int> members;
  for (const auto& client : cluster_.clients()) {
    if (takes_part(*client)) members.push_back(client->place);
  }
  auto before = newest_.members;
  std::ranges::sort(before);
  if (members.empty() || (members == before && !failed_)) return;
  for (size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[world.below(i)]);
  failed_ = false;
  newest_ = {newest_.number + 1, std::move(members)};
  ++cluster_.tally().groups;
  world.trace("group {}, of {} workers", newest_.number, newest_.members.size());
  for (const int place : newest_.members) tell(place);
}

void Groups::tell(int place) {
  cluster_.send_client(kCoordinator, place,
                       [group = newest_](ClientProcess& client) { client.worker->told(group); });
}

void Groups::reconnected(int place) {
  if (std::ranges::count(newest_.members, place) > 0) tell(place);
}

void Groups::report(uint64_t group) {
  if (group == newest_.number) failed_ = true;
}

void Groups::meet(const Group& group, uint64_t operation, int place, uint64_t value) {
  auto& meeting = meetings_[{group.number, operation}];
  meeting.there.insert(place);
  meeting.most = std::max(meeting.most, value);
  if (meeting.there.size() < group.members.size()) return;
  const uint64_t most = meeting.most;
  if (operation == 1) agreed_ = std::max(agreed_, group.number);
  auto& world = cluster_.world();
  for (const int member : group.members) {
    world.after(world.between(100us, 5ms), [this, member, number = group.number, operation, most] {
      cluster_.take_client(member, [number, operation, most](ClientProcess& client) {
        client.worker->met(number, operation, most);
      });
    });
  }
}

// An operation of an older group can still be completed by one that was suspended. But no barrier
// behind the position with which another one has left that group: so what servers may be told then
// is nothing that a member of the newer group does not know.
bool Groups::can_lose(const ClientProcess& client) const {
  return std::ranges::any_of(cluster_.clients(), [&](const auto& other) {
    return other.get() != &client && takes_part(*other) && !cluster_.is_suspended(*other) &&
           other->worker->agreed() > 0 && other->worker->agreed() >= agreed_;
  });
}

bool Groups::all_stopped() const {
  return std::ranges::all_of(cluster_.clients(), [&](const auto& client) {
    if (!client->alive) return true;
    return !cluster_.is_suspended(*client) && client->worker->stopped() &&
           client->worker->group().number == newest_.number;
  });
}

uint64_t Groups::position() const {
  uint64_t most = 0;
  for (const auto& client : cluster_.clients()) {
    if (client->alive) most = std::max(most, client->worker->position());
  }
  return most;
}

}  // namespace muster::ps::simulation
