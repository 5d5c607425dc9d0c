#include "muster/roster/hang_rules.h"

#include <algorithm>

#include "muster/base/text.h"
#include "muster/roster/follow.h"

namespace muster::roster {

Census::Census(const State& state) {
  for (const Member& member : state.current.members) {
    const WorkerState* found = state.find(member.key);
    by_rank.push_back(found);
    if (found) members.push_back(found);
  }
  std::ranges::sort(members);
  takes_part = members;
  // Until their last step boundary the others wait for those who leave, too.
  for (const WorkerKey& key : state.current.leaving) {
    const WorkerState* found = state.find(key);
    if (found && found->beat.activity != Activity::kLeft) takes_part.push_back(found);
  }
  std::ranges::sort(takes_part);
  for (const WorkerState* one : takes_part) {
    if (one->beat.group == 0) continue;
    Group& group = groups[one->beat.group];
    ++group.size;
    auto& since = group.waiting_since;
    if (!waits_for_peers(one->beat.activity)) continue;
    since = since ? std::min(*since, one->progressed) : one->progressed;
  }
}

bool Census::is_member(const WorkerState& worker) const {
  return std::ranges::binary_search(members, &worker);
}
bool Census::includes(const WorkerState& worker) const {
  return std::ranges::binary_search(takes_part, &worker);
}

namespace {

// A worker that cannot connect to the others gives up after kConnectTimeout and reports whom it
// could not reach: then it does not hang. The two seconds are for closing what was connected, and
// for the report to arrive.
constexpr Duration kConnecting = kConnectTimeout + std::chrono::seconds(2);

class Judging {
 public:
  Judging(Moment now, const Census& census, const State& state, const Options& options)
      : now_(now), census_(census), state_(state), options_(options) {}

  HangVerdict member(const WorkerState& worker) {
    HangVerdict verdict;
    verdict.hangs = why_hung(worker);
    verdict.look_again = look_again_;
    return verdict;
  }

  StandstillVerdict standstill() {
    StandstillVerdict verdict;
    verdict.since = still_since();
    verdict.look_again = look_again_;
    return verdict;
  }

 private:
  struct Awaited {
    Moment since;
    bool by_peers = true;
  };

  void look_again(Moment when) {
    if (!look_again_ || when < *look_again_) look_again_ = when;
  }
  bool reached(Moment when) {
    if (now_ >= when) return true;
    look_again(when);
    return false;
  }
  // Whether what is known, until `still_until`, is enough to say that nothing has changed before
  // `when`. If not, the next heartbeat will tell.
  bool known_until(Moment when, Moment still_until) {
    if (still_until >= when) return true;
    look_again(std::max(when, now_ + options_.heartbeat / 4));
    return false;
  }

  std::optional<std::string> why_hung(const WorkerState& worker) {
    const Duration timeout = options_.hang_timeout;
    if (timeout <= Duration{0}) return std::nullopt;
    if (has_only_to_leave(worker)) return why_not_left(worker);
    if (!census_.includes(worker)) return std::nullopt;
    if (!reached(worker.progressed + timeout)) return std::nullopt;
    auto awaited = awaited_in_group(worker);
    if (const auto outside = awaited_outside(worker);
        outside && (!awaited || outside->since < awaited->since)) {
      awaited = outside;
    }
    if (!awaited) {
      // Who waits is known from heartbeats, for which nothing else is decided.
      look_again(now_ + timeout / 8);
      return std::nullopt;
    }
    if (!known_until(awaited->since + timeout, worker.still_until)) return std::nullopt;
    return fmt::format(
        "it hangs: no progress for {} after step {}, {}",
        human_seconds(seconds(awaited->by_peers ? timeout : 3 * timeout)), worker.beat.step,
        awaited->by_peers ? "while others wait for it" : "and it is the only member");
  }

  // It is in no group and will be in none: its own thread has only to say that it has left or, once
  // it was released, to exit.
  bool has_only_to_leave(const WorkerState& worker) const {
    return worker.asked_to_leave && worker.beat.leaving && worker.beat.group == 0 &&
           !census_.is_member(worker) &&
           (worker.beat.activity != Activity::kLeft || worker.released);
  }

  std::optional<std::string> why_not_left(const WorkerState& worker) {
    const Moment since = std::max({worker.progressed, *worker.asked_to_leave,
                                   worker.released.value_or(*worker.asked_to_leave)});
    if (!reached(since + options_.hang_timeout)) return std::nullopt;
    if (!known_until(since + options_.hang_timeout, worker.still_until)) return std::nullopt;
    return fmt::format("it hangs: it was asked to leave and has not left for {}",
                       human_seconds(seconds(options_.hang_timeout)));
  }

  // In a group, this roster's or one before: since when a peer waits for its own work. A member
  // that waits itself is not judged here, but in still_since().
  std::optional<Awaited> awaited_in_group(const WorkerState& worker) const {
    if (worker.beat.group == 0) return std::nullopt;
    const Census::Group& group = census_.groups.at(worker.beat.group);
    // No peer waits for one that is alone, but the job does, or its launcher.
    if (group.size == 1) return Awaited{worker.progressed + 2 * options_.hang_timeout, false};
    if (!group.waiting_since || waits_for_peers(worker.beat.activity)) return std::nullopt;
    return Awaited{std::max(worker.progressed, *group.waiting_since)};
  }

  // Not in the present roster's group yet: since when others wait for it there.
  std::optional<Awaited> awaited_outside(const WorkerState& worker) const {
    const RosterNumber current = state_.current.number;
    const RosterNumber group = worker.beat.group;
    if ((group == current && current != 0) || worker.beat.known < current) return std::nullopt;
    const bool must_leave = group != 0 && must_be_left(group);
    if (!must_leave) {
      // One that leaves, or waits for more workers to come, forms no group.
      if (state_.current.waiting || !census_.is_member(worker)) return std::nullopt;
      // Still in a group before this one, until its next step boundary: it waits there for a peer,
      // and that one is judged.
      if (group != 0 && waits_for_peers(worker.beat.activity)) return std::nullopt;
      if (waits_for_addresses(worker)) return std::nullopt;
    }
    Moment since = std::max(worker.progressed, state_.awaited.value_or(state_.issued));
    if (worker.offered == current && worker.addressed) {
      since = std::max(since, *worker.addressed + kConnecting);
    }
    // Whatever came before this roster, it has had time to follow it.
    const Duration least = std::max(options_.hang_timeout / 4, options_.lease / 2);
    since = std::max(since, state_.issued + least - options_.hang_timeout);
    return Awaited{since, census_.takes_part.size() > 1};
  }

  bool waits_for_addresses(const WorkerState& worker) const {
    return worker.awaits_addresses == state_.current.number;
  }

  // Whether whoever is still in the group of this roster should have left it at once.
  bool must_be_left(RosterNumber group) const {
    const auto found = std::ranges::find(state_.history, group, &Roster::number);
    return found == state_.history.end() || why_abort(*found, state_.current).has_value();
  }

  std::optional<Moment> still_since() {
    const Duration half = options_.hang_timeout / 2;
    if (half <= Duration{0} || census_.takes_part.size() < 2) return std::nullopt;
    // What the intervals of all have in common begins with the last of them, and ends with the
    // heartbeat that is the oldest.
    Moment begin{};
    Moment end = Moment::max();
    bool all_wait = census_.members.size() == state_.current.members.size();
    for (const WorkerState* one : census_.takes_part) {
      begin = std::max(begin, one->progressed);
      end = std::min(end, one->still_until);
      all_wait &=
          one->beat.group != 0 ? waits_for_peers(one->beat.activity) : waits_for_addresses(*one);
    }
    const Moment due = std::max(begin, state_.issued) + half;
    if (!reached(due)) return std::nullopt;
    if (!all_wait) {
      look_again(now_ + options_.hang_timeout / 8);
      return std::nullopt;
    }
    if (!known_until(due, end)) return std::nullopt;
    return begin;
  }

  const Moment now_;
  const Census& census_;
  const State& state_;
  const Options& options_;
  std::optional<Moment> look_again_;
};

}  // namespace

HangVerdict judge_member(Moment now, const WorkerState& worker, const Census& census,
                         const State& state, const Options& options) {
  return Judging(now, census, state, options).member(worker);
}

StandstillVerdict judge_standstill(Moment now, const Census& census, const State& state,
                                   const Options& options) {
  return Judging(now, census, state, options).standstill();
}

}  // namespace muster::roster
