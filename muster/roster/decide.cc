#include "muster/roster/decide.h"

#include <algorithm>
#include <map>

#include "muster/base/text.h"
#include "muster/roster/conflicts.h"
#include "muster/roster/lanes.h"

namespace muster::roster {

namespace {

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
      if (!found) continue;
      members_.push_back(found);
      Moment& got_on = got_on_[found->beat.group];
      got_on = std::max(got_on, found->progressed);
      if (found->beat.activity == Activity::kForming) ++forming_;
      if (found->beat.activity == Activity::kWaiting && in_current_group(*found)) ++waiting_;
    }
    std::ranges::sort(members_);
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
    } else if (worker.disconnected && reached(*worker.disconnected + options_.linger)) {
      remove(RemovalCause::kDisconnected, "its connection broke");
    } else if (reached(worker.heard + options_.lease)) {
      remove(RemovalCause::kLeaseExpired, fmt::format("nothing was heard from it for {}",
                                                      human_seconds(seconds(options_.lease))));
    } else if (auto reason = why_overdue(worker)) {
      remove(RemovalCause::kHung, std::move(*reason));
    }
  }

  // Alive, but its own work does not get on.
  std::optional<std::string> why_overdue(const WorkerState& worker) {
    if (options_.hang_timeout <= Duration{0} || state_.current.waiting || !is_member(worker)) {
      return std::nullopt;
    }
    const bool inside = in_current_group(worker);
    if (inside && (worker.beat.activity != Activity::kComputing || waiting_ == 0))
      return std::nullopt;
    // On the way to the group: where nobody waits yet it takes longer to be sure. So it does for
    // one that says it is forming it, for it may be waiting for another; but such a wait has an end
    // of its own, and if it has not, its thread hangs.
    const bool forming = worker.beat.activity == Activity::kForming;
    const bool waited_for = inside || (forming_ > 0 && !forming);
    const Duration patience = waited_for ? options_.hang_timeout : 3 * options_.hang_timeout;
    Moment since = worker.progressed;
    if (!inside) since = std::max(since, state_.issued);
    // Still in the group before: a change by plan waits for a step boundary. What holds it up there
    // may be a peer that gets on, say with a long evaluation or with the last checkpoint.
    if (!inside && worker.beat.group != 0) since = std::max(since, got_on_.at(worker.beat.group));
    if (!reached(since + patience)) return std::nullopt;
    return fmt::format("it hangs: no progress for {} after step {}",
                       human_seconds(seconds(patience)), worker.beat.step);
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
      const bool done = found && found->beat.activity == Activity::kDone;
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

  // Nobody in the group gets on, and nobody can be said to be the cause: another group will tell,
  // for who hangs will not come to it.
  void judge_standstill() {
    if (options_.hang_timeout <= Duration{0} || !settled_ || lost_ || state_.current.waiting)
      return;
    if (members_.empty()) return;
    Moment last = state_.issued;
    for (const WorkerState* member : members_) last = std::max(last, member->progressed);
    if (!reached(last + 3 * options_.hang_timeout)) return;
    result_.retry = true;
    void_through_ = std::max(void_through_, state_.current.number);
    say(fmt::format("no member got on for {}", human_seconds(seconds(3 * options_.hang_timeout))));
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

  bool gathering() {
    if (state_.current.number != 0 || !state_.first_join) return false;
    return static_cast<int32_t>(add_.size()) < options_.expected &&
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
  std::vector<const WorkerState*> by_rank_;  // members of the present roster; null: not known
  std::vector<const WorkerState*> members_;  // those that are known; sorted
  std::map<RosterNumber, Moment> got_on_;    // by the group they are in: when anyone last did
  int forming_ = 0;                          // how many of them say so
  int waiting_ = 0;                          // how many wait inside the present group
  bool settled_ = false;                     // every member is in the group of the present roster
  bool lost_ = false;                        // the present roster cannot go on
  bool leaves_ = false;                      // a member asked to go
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

void carry_out(Moment now, const Decision& decision, State& state, const Options& options) {
  if (decision.retry && !decision.conflicts.empty()) state.conflicts = decision.conflicts;
  for (const Removal& removal : decision.out) {
    const auto found = state.workers.find(removal.who.id);
    if (found == state.workers.end() || found->second.key() != removal.who) continue;
    if (removal.cause == RemovalCause::kQuarantined) {
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
  state.current = *decision.roster;
  state.highest = decision.roster->number;
  state.issued = now;
  state.rebalanced = now;
  if (decision.retry) ++state.failures;
}

}  // namespace muster::roster
