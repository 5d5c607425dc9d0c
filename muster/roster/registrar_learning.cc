// What a coordinator learns from workers about the time before it: rosters that other coordinators
// of the same job have issued.
#include <algorithm>

#include "muster/roster/registrar.h"

namespace muster::roster {

// Numbers of other coordinators of this job are close to this one's term, which is a time of day in
// milliseconds or a revision. One that is years ahead is damaged or forged, and would use up all
// numbers.
bool Registrar::plausible(RosterNumber number) const {
  constexpr uint64_t kYears = uint64_t{1} << 36;  // about two, in milliseconds
  return term_of(number) <= first_term_ + kYears;
}

// Another coordinator has issued this number. If the wall clock was set back, that one's term is
// above ours, and it may have issued further numbers that only silent workers know: ours must
// differ from those, and from those of other coordinators that find themselves in the same place.
void Registrar::heard_of(RosterNumber number) {
  state_.highest = std::max(state_.highest, number);
  if (number <= issued_ || term_of(number) < options_.term) return;
  options_.term = term_of(number) + 1 + options_.nonce % (uint64_t{1} << 16);
}

// Without what makes it the name of a group.
static std::string_view site_name(const Member& member) {
  return member.site().empty() ? member.site() : member.site().substr(kSite.size());
}

// What a worker brings along may become the present roster, so it must be one that a coordinator of
// this job can have issued.
Status Registrar::check_held(const JoinRequest& request) const {
  const auto wrong = [&](std::string_view what) {
    return Error(ErrorKind::kInternal, "worker {} holds a roster that no coordinator issued: {}",
                 request.key.id, what);
  };
  const Roster& held = request.held;
  if (!plausible(request.highest) || !plausible(held.number))
    return wrong("its number is too high");
  if (held.number == 0) return {};
  if (held.job != options_.job) return wrong("it is of another job");
  if (!held.has(request.key) && !held.is_leaving(request.key))
    return wrong("the worker is not in it");
  for (const Member& member : held.members) {
    const RoleOptions* role = options_.role(member.role);
    if (!role || options_.groups_of(*role, std::string(site_name(member))) != member.groups) {
      return wrong("its groups are not those of this job");
    }
    if (!member.site().empty() && !member.lanes.empty() &&
        held.group(member.site()).front() != &member) {
      return wrong("in a site another one than the first has lanes");
    }
    if (!role->computes_lanes && !member.lanes.empty()) {
      return wrong("a member whose role computes no lanes has some");
    }
  }
  return check_roster(held, options_.lanes);
}

// What this worker knows of the time before this coordinator.
void Registrar::learn(Moment now, const JoinRequest& request) {
  heard_of(std::max(request.highest, request.held.number));
  if (!state_.learning || request.held.number <= state_.current.number) return;
  take_up(request.held, now, state_);
  take_up_current();
}

// The newest roster that anybody holds is known: those who hold an older one, and are not in it,
// were removed.
void Registrar::end_learning() {
  std::vector<WorkerKey> strangers;
  for (const auto& [id, worker] : state_.workers) {
    if (worker.join.held.number != 0 && !state_.current.has(worker.key()) &&
        !state_.current.is_leaving(worker.key())) {
      strangers.push_back(worker.key());
    }
  }
  for (const WorkerKey& key : strangers) {
    end_session(key, Removed{"a newer roster is without it", RemovalCause::kDisconnected});
    state_.workers.erase(key.id);
  }
}

}  // namespace muster::roster
