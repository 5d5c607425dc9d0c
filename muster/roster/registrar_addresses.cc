// How the Registrar passes addresses on: for each group of the present roster, those of all members
// to all members.
#include <algorithm>
#include <utility>

#include "muster/roster/registrar.h"

namespace muster::roster {

Registrar::GroupExchange::GroupExchange(std::vector<std::string> members)
    : ids(std::move(members)), addresses(ids.size()) {
  for (size_t rank = 0; rank < ids.size(); ++rank) ranks[ids[rank]] = static_cast<int>(rank);
}

void Registrar::offer_addresses(Moment now, SessionId session, RosterNumber roster,
                                const std::string& group, std::string blob) {
  WorkerState* worker = find(session);
  if (!worker) return;
  const std::string& id = worker->key().id;
  if (roster != state_.current.number || rank_of(worker->key()) < 0) {
    send(session, superseded(roster, group));
    return;
  }
  const auto found = exchanges_.find(group);
  if (found == exchanges_.end() || !found->second.ranks.contains(id)) {
    send(session, Addresses{roster, shortened(group, kLongestName), nullptr,
                            fmt::format("worker {} is not in group '{}' of roster {}", id,
                                        shortened(group, kLongestName), sequence_of(roster)),
                            false});
    return;
  }
  const bool first = !state_.awaited;
  if (first) state_.awaited = now;
  if (worker->offered != roster) worker->addressed.reset();
  worker->offered = roster;
  AddressExchange& addresses = found->second.addresses;
  // Sent again, by its connection alone, they say nothing about its own thread.
  const int place = found->second.ranks.at(id);
  if (!addresses.offered(place)) worker->progressed = worker->still_until = now;
  const bool was_complete = addresses.complete();
  const auto answer = addresses.offer(place, std::move(blob));
  if (answer == AddressExchange::Answer::kTooLate) {
    send(session,
         Addresses{roster, group, nullptr, "its addresses are not those the others have", false});
  } else if (answer == AddressExchange::Answer::kComplete && was_complete) {
    send(session, Addresses{roster, group, addresses.blobs(), "", false});
  } else if (answer == AddressExchange::Answer::kComplete) {
    const auto all =
        std::make_shared<const ToWorker>(Addresses{roster, group, addresses.blobs(), "", false});
    for (const std::string& member : found->second.ids) {
      const auto to = session_of_.find(member);
      if (to != session_of_.end()) send(to->second, all);
      const auto other = state_.workers.find(member);
      if (other == state_.workers.end()) continue;
      other->second.addressed = now;
      note_awaited(other->second);
    }
  }
  note_awaited(*worker);
  // From the first offer on, a member waits for the others: when to look for one that hangs follows
  // from it. For each further one there is nothing to decide.
  first ? settle(now) : release_leavers(now);
}

// Whether it has given its addresses for a group in which others have not.
void Registrar::note_awaited(WorkerState& worker) const {
  const bool awaits = std::ranges::any_of(exchanges_, [&](const auto& one) {
    const auto& [ids, ranks, addresses] = one.second;
    const auto rank = ranks.find(worker.key().id);
    return rank != ranks.end() && addresses.offered(rank->second) && !addresses.complete();
  });
  worker.awaits_addresses = awaits ? state_.current.number : 0;
}

// Members that wait for addresses of a roster that was replaced need not wait any longer.
void Registrar::fail_exchanges(RosterNumber old) {
  for (const auto& [group, exchange] : exchanges_) {
    if (exchange.addresses.complete()) continue;
    for (size_t rank = 0; rank < exchange.ids.size(); ++rank) {
      if (!exchange.addresses.offered(static_cast<int>(rank))) continue;
      const auto found = session_of_.find(exchange.ids[rank]);
      if (found != session_of_.end()) send(found->second, superseded(old, group));
    }
  }
}

Addresses Registrar::superseded(RosterNumber roster, const std::string& group) const {
  return {roster, shortened(group, kLongestName), nullptr,
          fmt::format("roster {} has replaced it: {}", sequence_of(state_.current.number),
                      state_.current.reason),
          true};
}

}  // namespace muster::roster
