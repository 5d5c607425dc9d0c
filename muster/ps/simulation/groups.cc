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
  const uint64_t number = newest_.number + 1;
  std::map<int, uint64_t> since;
  for (const int place : members) {
    const auto known = newest_.since.find(place);
    since[place] = known == newest_.since.end() ? number : known->second;
  }
  newest_ = {number, std::move(members), std::move(since)};
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

void Groups::agree(const Group& group, int place, const roster::StateReport& report, uint64_t era) {
  // Whoever has left has closed its connections, so the reports of all do not come together any
  // more. If they had been sent before, there is a barrier behind them (Recovery::run).
  const bool broken = std::ranges::any_of(cluster_.clients(), [&](const auto& client) {
    const bool is_member = std::ranges::count(group.members, client->place) > 0;
    return is_member && (!client->alive || client->worker->group().number > group.number);
  });
  if (broken) return;
  auto& meeting = meetings_[{group.number, 1}];
  meeting.reports.insert_or_assign(place, std::pair(report, era));
  if (meeting.reports.size() == group.members.size()) agree_all(group, meeting);
}

// All read the same checkpoint.
void Groups::agree_all(const Group& group, Meeting& meeting) {
  std::vector<roster::StateReport> reports;
  for (const int place : group.members) reports.push_back(meeting.reports.at(place).first);
  const auto agreement = roster::agree(reports);
  Agreed agreed{.position = agreement.position.step, .era = 0, .checkpoint = {}};
  if (agreement.any(roster::Action::kRestore)) {
    agreed.checkpoint = checkpoints_.find(agreed.position);
    // It is gone: another group tries another one.
    if (agreed.position > 0 && agreed.checkpoint == nullptr) return report(group.number);
    agreed.era = cluster_.era_of_load(group.number, checkpoints_.last_era());
    checkpoints_.begin_era(agreed.era, agreed.checkpoint);
    if (agreed.position > 0) ++cluster_.tally().returns;
  } else {
    const auto source = static_cast<size_t>(agreement.sources.front());
    agreed.era = meeting.reports.at(group.members[source]).second;
  }
  agreed_ = std::max(agreed_, group.number);
  auto& world = cluster_.world();
  for (size_t rank = 0; rank < group.members.size(); ++rank) {
    agreed.action = agreement.actions[rank];
    world.after(world.between(100us, 5ms),
                [this, member = group.members[rank], number = group.number, agreed] {
                  cluster_.take_client(member, [number, agreed](ClientProcess& client) {
                    client.worker->agreed(number, agreed);
                  });
                });
  }
}

// In the product one of them computes wrongly, and the others notice when they compare. So it may
// be before they have all saved that they go back behind it.
void Groups::audit() {
  const uint64_t newest = checkpoints_.newest();
  const uint64_t trusted = cluster_.world().chance(0.5) ? newest : newest / 2;
  cluster_.world().trace("what was computed after {} is invalid", trusted);
  checkpoints_.roll_back({newest_.number, trusted});
  failed_ = true;
}

void Groups::meet(const Group& group, uint64_t operation, int place, uint64_t value) {
  auto& meeting = meetings_[{group.number, operation}];
  meeting.there.insert(place);
  meeting.most = std::max(meeting.most, value);
  if (meeting.there.size() < group.members.size()) return;
  const uint64_t most = meeting.most;
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
  const bool nobody = std::ranges::none_of(
      cluster_.clients(), [](const auto& one) { return one->alive && one->worker->has_state(); });
  return nobody || std::ranges::any_of(cluster_.clients(), [&](const auto& other) {
           return other.get() != &client && takes_part(*other) && !cluster_.is_suspended(*other) &&
                  other->worker->has_state() && other->worker->agreed() >= agreed_;
         });
}

bool Groups::all_stopped() const {
  return std::ranges::all_of(cluster_.clients(), [&](const auto& client) {
    if (!client->alive) return true;
    return !cluster_.is_suspended(*client) && client->worker->stopped() &&
           client->worker->group().number == newest_.number;
  });
}

const Worker* Groups::ahead() const {
  const Worker* most = nullptr;
  for (const auto& client : cluster_.clients()) {
    if (!client->alive || !client->worker->has_state()) continue;
    if (most == nullptr || client->worker->position() > most->position()) {
      most = client->worker.get();
    }
  }
  return most;
}

uint64_t Groups::position() const { return ahead() == nullptr ? 0 : ahead()->position(); }
uint64_t Groups::era() const { return ahead() == nullptr ? 0 : ahead()->era(); }

}  // namespace muster::ps::simulation
