#include "muster/roster/decide.h"

#include <algorithm>
#include <map>

#include "muster/base/text.h"
#include "muster/roster/conflicts.h"
#include "muster/roster/follow.h"
#include "muster/roster/lanes.h"

namespace muster::roster {

namespace {

// Longer than a worker takes at most to connect to all members (train/membership.h).
constexpr Duration kConnecting = std::chrono::seconds(12);

// One decision in the making. Reads the state, writes only `result_`.
class Deciding {
 public:
  Deciding(Moment now, const State& state, const Options& options)
      : now_(now), state_(state), options_(options) {}

  Decision run() {
    // Who goes now goes because it is over.
    if (state_.ended) return finish(state_.ended->reason);
    look_round();
    find_gone();
    if (!listen()) return std::move(result_);
    find_members();
    judge_standstill();
    judge_failures();
    find_candidates();
    return issue();
  }

 private:
  Decision finish(std::string reason) {
    result_.reason = std::move(reason);
    return std::move(result_);
  }

  void look_again(Moment when) {
    if (!result_.look_again || when < *result_.look_again) result_.look_again = when;
  }
  // Whether `when` has come; if not, remembers to look again.
  bool reached(Moment when) {
    if (now_ >= when) return true;
    look_again(when);
    return false;
  }

  void say(std::string sentence) { why_.push_back(std::move(sentence)); }

  const WorkerState* worker(const WorkerKey& key) const {
    const auto found = state_.workers.find(key.id);
    return found != state_.workers.end() && found->second.key() == key ? &found->second : nullptr;
  }
  bool gone(const WorkerKey& key) const {
    return std::ranges::find(result_.out, key, &Removal::who) != result_.out.end();
  }
  bool in_current_group(const WorkerState& worker) const {
    return worker.beat.group == state_.current.number && state_.current.number != 0;
  }

  // What the rules below ask of every worker, counted once: thousands of workers are no problem.
  void look_round() {
    for (const Member& member : state_.current.members) {
      const WorkerState* found = worker(member.key);
      by_rank_.push_back(found);
      if (found) members_.push_back(found);
    }
    std::ranges::sort(members_);
    takes_part_ = members_;
    // Until their last step boundary the others wait for those who leave, too.
    for (const WorkerKey& key : state_.current.leaving) {
      const WorkerState* found = worker(key);
      if (found && found->beat.activity != Activity::kLeft) takes_part_.push_back(found);
    }
    std::ranges::sort(takes_part_);
    for (const WorkerState* one : takes_part_) {
      if (one->beat.group == 0) continue;
      GroupView& group = groups_[one->beat.group];
      ++group.size;
      auto& since = group.waiting_since;
      if (!waits_for_peers(one->beat.activity)) continue;
      since = since ? std::min(*since, one->progressed) : one->progressed;
    }
  }
  bool is_member(const WorkerState& worker) const {
    return std::ranges::binary_search(members_, &worker);
  }

  void find_gone() {
    for (const auto& [id, worker] : state_.workers) {
      find_gone(worker);
    }
  }

  void find_gone(const WorkerState& worker) {
    const auto remove = [&](RemovalCause cause, std::string reason) {
      result_.out.push_back({.who = worker.key(), .reason = std::move(reason), .cause = cause});
    };
    if (!worker.exited.empty()) {
      remove(RemovalCause::kExited, worker.exited);
    } else if (worker.disconnected && reached(reconnect_by(worker))) {
      remove(RemovalCause::kDisconnected, "its connection broke");
    } else if (reached(worker.heard + options_.lease)) {
      remove(RemovalCause::kLeaseExpired, fmt::format("nothing was heard from it for {}",
                                                      human_seconds(seconds(options_.lease))));
    } else if (auto reason = why_faulty(worker)) {
      remove(RemovalCause::kFaulty, std::move(*reason));
    } else if (auto reason = why_overdue(worker)) {
      remove(RemovalCause::kHung, std::move(*reason));
    }
  }

  Moment reconnect_by(const WorkerState& worker) const {
    const Moment usual = *worker.disconnected + options_.linger;
    return state_.resumed ? std::max(usual, *state_.resumed + options_.grace) : usual;
  }

  // An audit of the workers found that its state or what it computes is wrong. All members of a
  // group come to the same verdict, so one that says it is enough.
  std::optional<std::string> why_faulty(const WorkerState& worker) const {
    for (const WorkerState* accuser : takes_part_) {
      const Heartbeat& beat = accuser->beat;
      if (beat.faulty != worker.key().id) continue;
      // As it was in that roster: its replacement is another one.
      const auto roster = std::ranges::find(state_.history, beat.broken, &Roster::number);
      if (roster == state_.history.end() || !roster->has(worker.key()) ||
          !roster->has(accuser->key())) {
        continue;
      }
      return fmt::format("{}; it may join again in {}", beat.trouble,
                         human_seconds(seconds(bar_time(state_, worker.key().id, options_))));
    }
    return std::nullopt;
  }

  // Alive, but its own work makes no progress while others wait for it.
  std::optional<std::string> why_overdue(const WorkerState& worker) {
    const Duration timeout = options_.hang_timeout;
    if (timeout <= Duration{0} || !std::ranges::binary_search(takes_part_, &worker)) {
      return std::nullopt;
    }
    if (!reached(worker.progressed + timeout)) return std::nullopt;
    auto since = awaited_in_group(worker);
    if (const auto outside = awaited_outside(worker); outside && (!since || *outside < *since)) {
      since = outside;
    }
    if (!since) {
      // Who waits is known from heartbeats, for which nothing else is decided.
      look_again(now_ + timeout / 8);
      return std::nullopt;
    }
    if (!reached(*since + timeout)) return std::nullopt;
    return fmt::format("it hangs: no progress for {} after step {}, while others wait for it",
                       human_seconds(seconds(timeout)), worker.beat.step);
  }

  // In a group, this roster's or one before: since when a peer waits for its own work. A member
  // that waits itself is not judged here (judge_standstill).
  std::optional<Moment> awaited_in_group(const WorkerState& worker) const {
    if (worker.beat.group == 0) return std::nullopt;
    const GroupView& group = groups_.at(worker.beat.group);
    // No peer waits for one that is alone, but the job does, or its launcher.
    if (group.size == 1) return worker.progressed + 2 * options_.hang_timeout;
    // If all are busy with their own work, it may be the storage that they all read from: they go
    // on when that does.
    if (!group.waiting_since || waits_for_peers(worker.beat.activity)) return std::nullopt;
    return std::max(worker.progressed, *group.waiting_since);
  }

  // Not in the present roster's group yet: since when others wait for it there.
  std::optional<Moment> awaited_outside(const WorkerState& worker) const {
    if (in_current_group(worker) || worker.beat.known < state_.current.number) return std::nullopt;
    const bool must_leave = worker.beat.group != 0 && must_be_left(worker.beat.group);
    if (!must_leave) {
      // One that leaves, or waits for more workers to come, forms no group.
      if (state_.current.waiting || !is_member(worker)) return std::nullopt;
      // Still in a group before this one, until its next step boundary: it waits there for a peer,
      // and that one is judged.
      if (worker.beat.group != 0 && waits_for_peers(worker.beat.activity)) return std::nullopt;
      if (waits_for_addresses(worker)) return std::nullopt;
    }
    Moment since = std::max(worker.progressed, state_.awaited.value_or(state_.issued));
    // Connecting has a time limit of its own.
    if (worker.offered == state_.current.number && state_.exchanged) {
      since = std::max(since, *state_.exchanged + kConnecting);
    }
    // Whatever came before this roster, it has had time to follow it.
    const Duration least = std::max(options_.hang_timeout / 4, options_.lease / 2);
    return std::max(since, state_.issued + least - options_.hang_timeout);
  }

  bool waits_for_addresses(const WorkerState& worker) const {
    return worker.offered == state_.current.number && !state_.exchanged;
  }

  // Whether whoever is still in the group of this roster should have left it at once.
  bool must_be_left(RosterNumber group) const {
    const auto found = std::ranges::find(state_.history, group, &Roster::number);
    return found == state_.history.end() || why_abort(*found, state_.current).has_value();
  }

  // A coordinator that replaces another one first hears who is there. False: still listening.
  bool listen() {
    if (!state_.learning) return true;
    size_t shown = 0;
    for (const Member& member : state_.current.members) {
      if (worker(member.key) && !gone(member.key)) ++shown;
    }
    const bool all = state_.current.number != 0 && shown == state_.current.members.size();
    if (!all && !reached(state_.started + options_.grace)) {
      result_.reason =
          fmt::format("this coordinator is new and listens: {} of {} members of roster {} so far",
                      shown, state_.current.members.size(), sequence_of(state_.current.number));
      return false;
    }
    result_.learned = true;
    return true;
  }

  // Sorts the members of the present roster into those that stay, go by plan, and are lost.
  void find_members() {
    const Roster& roster = state_.current;
    settled_ = true;
    for (size_t rank = 0; rank < roster.members.size(); ++rank) {
      const Member& member = roster.members[rank];
      const WorkerState* found = by_rank_[rank];
      if (!found || gone(member.key)) {
        lost_ = true;
        settled_ = false;
        say_lost(member.key);
        continue;
      }
      settled_ &= roster.waiting || in_current_group(*found);
      if (found->beat.known > roster.number) {
        // It came late from a coordinator that is no more, and some may have acted on it.
        lost_ = true;
        void_through_ = std::max(void_through_, found->beat.known);
        say(fmt::format("worker {} has roster {} of another coordinator", member.key.id,
                        sequence_of(found->beat.known)));
      }
      if (found->beat.leaving) {
        leaving_.push_back(member.key);
        leaves_ = true;
      } else {
        stay_.push_back(member);
        staying_.push_back(found);
      }
    }
    for (const WorkerKey& key : roster.leaving) {
      const WorkerState* found = worker(key);
      const bool here = found && !gone(key);
      const bool done = found && found->beat.activity == Activity::kLeft;
      if (here && !done) leaving_.push_back(key);
      // It went before its last step boundary, as far as we know: the others may be waiting for it.
      const bool missing = !here && !done && (found || result_.learned);
      if (missing && !settled_) {
        lost_ = true;
        say_lost(key);
      }
    }
  }

  void say_lost(const WorkerKey& key) {
    const auto found = std::ranges::find(result_.out, key, &Removal::who);
    say(fmt::format("worker {} is out: {}", key.id,
                    found != result_.out.end() ? found->reason : "it did not show itself"));
  }

  // Every member waits for the others, and none makes progress: impossible among healthy ones, so
  // one hangs inside a collective, or what it sent was lost. Another group will tell which: a
  // member that hangs does not come to it, and is removed hang_timeout after the standstill began.
  void judge_standstill() {
    const Duration timeout = options_.hang_timeout;
    if (timeout <= Duration{0} || lost_ || takes_part_.size() < 2) return;
    Moment last{};
    bool all_wait = members_.size() == state_.current.members.size();
    for (const WorkerState* member : takes_part_) {
      last = std::max(last, member->progressed);
      all_wait &= member->beat.group != 0 ? waits_for_peers(member->beat.activity)
                                          : waits_for_addresses(*member);
    }
    if (!reached(std::max(last, state_.issued) + timeout / 2)) return;
    if (!all_wait) {
      look_again(now_ + timeout / 8);
      return;
    }
    result_.retry = true;
    result_.stalled = last;
    void_through_ = std::max(void_through_, state_.current.number);
    say(fmt::format("no member makes progress, for {}", human_seconds(seconds(now_ - last))));
  }

  // Members that live, but whose group failed.
  void judge_failures() {
    std::optional<Moment> since;
    std::string trouble;
    for (const WorkerState* member : staying_) {
      const WorkerState& found = *member;
      if (found.beat.broken == 0 || found.beat.broken > state_.highest) continue;
      void_through_ = std::max(void_through_, found.beat.broken);
      if (found.beat.broken != state_.current.number || !found.broke) continue;
      if (!since || *found.broke < *since) {
        since = found.broke;
        trouble =
            fmt::format("the group failed at worker {}: {}", found.key().id, found.beat.trouble);
      }
    }
    if (!since || lost_) return;
    // Each further failure without a commit in between waits longer, so that trouble nobody can
    // name does not become a storm of rosters.
    const auto wait = options_.confirm * (int64_t{1} << std::min(state_.failures, 6));
    if (!reached(*since + std::min<Duration>(wait, options_.lease))) return;
    result_.retry = true;
    say(std::move(trouble));
    result_.conflicts = conflicts_after(state_);
    put_one_out();
  }

  void put_one_out() {
    const Member* victim = one_to_put_out(result_.conflicts, stay_, options_.tries);
    if (!victim) return;
    const std::string reason = fmt::format(
        "it could not work with others in {} rosters; it may ask again in {}", options_.tries,
        human_seconds(seconds(bar_time(state_, victim->key.id, options_))));
    say(fmt::format("worker {} is put out: {}", victim->key.id, reason));
    result_.out.push_back(
        {.who = victim->key, .reason = reason, .cause = RemovalCause::kQuarantined});
    std::erase_if(stay_,
                  [&, key = victim->key](const Member& member) { return member.key == key; });
  }

  void find_candidates() {
    std::vector<const WorkerState*> candidates;
    for (const auto& [id, worker] : state_.workers) {
      const WorkerKey& key = worker.key();
      // One that holds a roster was a member: it still is, or it is out and must ask in anew.
      if (is_member(worker) || worker.join.held.number != 0 || worker.beat.leaving || gone(key) ||
          std::ranges::find(leaving_, key) != leaving_.end() ||
          std::ranges::find(state_.current.leaving, key) != state_.current.leaving.end()) {
        continue;
      }
      const auto bar = state_.bars.find(id);
      if (bar != state_.bars.end() && !reached(bar->second.until)) continue;
      candidates.push_back(&worker);
    }
    std::ranges::sort(candidates, {}, [](const WorkerState* worker) {
      return std::pair(worker->joined, worker->key().id);
    });
    const auto most = static_cast<size_t>(options_.most_workers());
    for (const WorkerState* candidate : candidates) {
      if (stay_.size() + add_.size() >= most) break;
      add_.push_back({.key = candidate->key(),
                      .host = candidate->join.host,
                      .slots = candidate->join.slots,
                      .lanes = {}});
    }
  }

  // The present roster was itself issued because of a loss.
  bool losing() const { return state_.lost; }

  bool gathering() {
    if (state_.current.number != 0 || !state_.first_join) return false;
    // More than can be members need not be waited for.
    const int32_t expected = std::min(options_.expected, options_.most_workers());
    return static_cast<int32_t>(add_.size()) < expected &&
           !reached(*state_.first_join + options_.gather);
  }

  Decision issue() {
    const bool urgent = lost_ || result_.retry;
    const bool planned = settled_ && (!add_.empty() || leaves_);
    if (!urgent && !planned) {
      if (settled_ && rebalance()) return std::move(result_);
      return finish(settled_ ? "nothing has changed"
                             : "the group of the present roster is being formed");
    }
    // The first loss is answered at once.
    if (lost_ && !settled_ && !state_.current.waiting && losing() &&
        !reached(state_.issued + options_.loss_batch)) {
      result_.out.clear();  // all of them are removed by the roster that follows
      return finish("gathering further losses");
    }
    if (gathering()) {
      return finish(fmt::format("{} of {} workers are here", add_.size(), options_.expected));
    }
    const auto size = static_cast<int32_t>(stay_.size() + add_.size());
    Roster next = begin_next();
    next.waiting = size < options_.min_workers;
    for (const Member& member : add_) say(fmt::format("worker {} joins", member.key.id));
    for (const WorkerKey& key : leaving_) {
      if (state_.current.has(key)) say(fmt::format("worker {} leaves", key.id));
    }
    next.members = stay_;
    next.members.insert(next.members.end(), add_.begin(), add_.end());
    if (next.waiting) {
      say(fmt::format("waiting: {} of at least {} workers are here", size, options_.min_workers));
      for (Member& member : next.members) member.lanes.clear();
    } else {
      const LanePlan plan = plan_lanes(speeds(next.members), lane_options());
      for (size_t i = 0; i < next.members.size(); ++i) next.members[i].lanes = plan.lanes[i];
    }
    put(std::move(next));
    return std::move(result_);
  }

  // The same members, other lanes, if that is worth it. True: issued.
  bool rebalance() {
    const Roster& roster = state_.current;
    if (roster.number == 0 || roster.waiting || roster.members.size() < 2) return false;
    if (!reached(state_.rebalanced + options_.rebalance_every)) return false;
    result_.rebalanced = true;
    look_again(now_ + options_.rebalance_every);
    const LanePlan plan = plan_lanes(speeds(roster.members), lane_options());
    if (plan.moves == 0) return false;
    Roster next = begin_next();
    next.members = roster.members;
    for (size_t i = 0; i < next.members.size(); ++i) next.members[i].lanes = plan.lanes[i];
    say(fmt::format("lanes follow speed: {} of {} move, a step takes {:.3g} s instead of {:.3g} s",
                    plan.moves, options_.lanes, plan.step_seconds, plan.before_seconds));
    put(std::move(next));
    return true;
  }

  Roster begin_next() const {
    Roster next;
    next.number = number_after(state_.highest, options_.term);
    next.job = options_.job;
    next.void_through = std::max(state_.current.void_through, void_through_);
    next.leaving = leaving_;
    return next;
  }

  void put(Roster next) {
    result_.lost = lost_;
    next.reason = fmt::format("{}", fmt::join(why_, "; "));
    result_.reason = next.reason;
    result_.roster = std::move(next);
  }

  std::vector<LaneWorker> speeds(const std::vector<Member>& members) const {
    std::vector<LaneWorker> result;
    for (const Member& member : members) {
      const WorkerState* found = worker(member.key);
      result.push_back({.lanes = member.lanes,
                        .lane_seconds = found ? found->lane_seconds : 0,
                        .slots = member.slots});
    }
    return result;
  }
  LaneOptions lane_options() const {
    return {.lanes = options_.lanes, .gain = options_.rebalance_gain};
  }

 public:
  static Duration bar_time(const State& state, const std::string& id, const Options& options) {
    const auto found = state.bars.find(id);
    const int32_t times = found == state.bars.end() ? 0 : found->second.times;
    return std::min<Duration>(options.bar * (int64_t{1} << std::min(times, 20)),
                              options.longest_bar);
  }

 private:
  const Moment now_;
  const State& state_;
  const Options& options_;
  Decision result_;
  std::vector<std::string> why_;
  std::vector<const WorkerState*> by_rank_;     // members of the present roster; null: not known
  std::vector<const WorkerState*> members_;     // those that are known; sorted
  std::vector<const WorkerState*> takes_part_;  // and those who leave and have not left; sorted
  struct GroupView {
    int size = 0;                         // of those who take part
    std::optional<Moment> waiting_since;  // the first of its members that waits for peers
  };
  std::map<RosterNumber, GroupView> groups_;  // that members are in
  bool settled_ = false;                      // every member is in the group of the present roster
  bool lost_ = false;                         // the present roster cannot go on
  bool leaves_ = false;                       // a member asked to go
  RosterNumber void_through_ = 0;
  std::vector<Member> stay_;
  std::vector<const WorkerState*> staying_;  // the same
  std::vector<Member> add_;
  std::vector<WorkerKey> leaving_;
};

}  // namespace

Decision decide(Moment now, const State& state, const Options& options) {
  return Deciding(now, state, options).run();
}

void take_up(Roster roster, Moment now, State& state) {
  state.current = std::move(roster);
  state.issued = now;
  state.history.push_back(state.current);
  if (state.history.size() > kHistory) state.history.pop_front();
}

void carry_out(Moment now, const Decision& decision, State& state, const Options& options) {
  if (decision.retry && !decision.conflicts.empty()) state.conflicts = decision.conflicts;
  for (const Removal& removal : decision.out) {
    const auto found = state.workers.find(removal.who.id);
    if (found == state.workers.end() || found->second.key() != removal.who) continue;
    if (removal.cause == RemovalCause::kQuarantined || removal.cause == RemovalCause::kFaulty) {
      const Duration time = Deciding::bar_time(state, removal.who.id, options);
      Bar& bar = state.bars[removal.who.id];
      bar.until = now + time;
      ++bar.times;
    }
    std::erase_if(state.conflicts, [&](const Conflict& conflict) {
      return conflict.a == removal.who.id || conflict.b == removal.who.id;
    });
    state.workers.erase(found);
  }
  if (decision.learned) state.learning = false;
  if (decision.rebalanced) state.rebalanced = now;
  if (!decision.roster) return;
  state.highest = decision.roster->number;
  take_up(*decision.roster, now, state);
  state.rebalanced = now;
  state.lost = decision.lost;
  if (decision.retry) ++state.failures;
  if (decision.stalled) state.awaited = decision.stalled;
}

}  // namespace muster::roster
