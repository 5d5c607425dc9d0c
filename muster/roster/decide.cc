#include "muster/roster/decide.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "muster/base/text.h"
#include "muster/roster/conflicts.h"
#include "muster/roster/hang_rules.h"
#include "muster/roster/lanes.h"

namespace muster::roster {

namespace {

// One decision in the making. Reads the state, writes only `result_`.
class Deciding {
 public:
  Deciding(Moment now, const State& state, const Options& options)
      : now_(now), state_(state), options_(options), census_(state) {}

  Decision run() {
    // Who goes now goes because it is over.
    if (state_.ended) return finish(state_.ended->reason);
    find_gone();
    if (!listen()) return std::move(result_);
    find_members();
    if (!lost_) judge_standstill();
    judge_failures();
    find_candidates();
    return issue();
  }

 private:
  Decision finish(std::string reason) {
    result_.reason = std::move(reason);
    return std::move(result_);
  }

  void look_again(std::optional<Moment> when) {
    if (!when) return;
    if (!result_.look_again || *when < *result_.look_again) result_.look_again = when;
  }
  // Whether `when` has come; if not, remembers to look again.
  bool reached(Moment when) {
    if (now_ >= when) return true;
    look_again(when);
    return false;
  }

  void say(std::string sentence) { why_.push_back(std::move(sentence)); }

  bool gone(const WorkerKey& key) const {
    return std::ranges::find(result_.out, key, &Removal::who) != result_.out.end();
  }
  bool in_current_group(const WorkerState& worker) const {
    return worker.beat.group == state_.current.number && state_.current.number != 0;
  }

  void find_gone() {
    std::ranges::copy_if(census_.takes_part, std::back_inserter(accusers_),
                         [](const WorkerState* one) { return !one->beat.faulty.empty(); });
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
    const Moment broke = *worker.disconnected;
    return state_.resumed ? std::max(broke, *state_.resumed + options_.grace) : broke;
  }

  // An audit of the workers found that its state or what it computes is wrong. All members of a
  // group come to the same verdict, so more than half of them must say so: whoever is faulty cannot
  // have another one removed. It may also say so of itself.
  std::optional<std::string> why_faulty(const WorkerState& worker) const {
    std::map<RosterNumber, size_t> accusers;
    for (const WorkerState* accuser : accusers_) {
      const Heartbeat& beat = accuser->beat;
      if (beat.faulty != worker.key().id) continue;
      // As it was in that roster: its replacement is another one.
      const auto roster = std::ranges::find(state_.history, beat.broken, &Roster::number);
      if (roster == state_.history.end() || !roster->has(worker.key()) ||
          !roster->has(accuser->key())) {
        continue;
      }
      const size_t count = ++accusers[beat.broken];
      const auto auditors = static_cast<size_t>(options_.trainers(roster->members));
      if (accuser != &worker && 2 * count <= auditors) continue;
      return fmt::format(
          "{}; it may rejoin in {}", beat.trouble,
          human_seconds(seconds(quarantine_time(state_, worker.key().id, options_))));
    }
    return std::nullopt;
  }

  // Alive, but its own work makes no progress while others wait for it.
  std::optional<std::string> why_overdue(const WorkerState& worker) {
    HangVerdict verdict = judge_member(now_, worker, census_, state_, options_);
    look_again(verdict.look_again);
    return std::move(verdict.hangs);
  }

  // A coordinator that replaces another one first hears who is there. False: still listening.
  bool listen() {
    if (!state_.learning) return true;
    size_t shown = 0;
    for (const Member& member : state_.current.members) {
      if (state_.find(member.key) && !gone(member.key)) ++shown;
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
      const WorkerState* found = census_.by_rank[rank];
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
        invalid_through_ = std::max(invalid_through_, found->beat.known);
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
      const WorkerState* found = state_.find(key);
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
    say(fmt::format("worker {} was removed: {}", key.id,
                    found != result_.out.end() ? found->reason : "it did not reconnect"));
  }

  // Every member waits for the others, and none makes progress: another group will tell which one
  // hangs.
  void judge_standstill() {
    const StandstillVerdict verdict = roster::judge_standstill(now_, census_, state_, options_);
    look_again(verdict.look_again);
    if (!verdict.since) return;
    result_.retry = true;
    result_.stalled = verdict.since;
    invalid_through_ = std::max(invalid_through_, state_.current.number);
    say(fmt::format("no member makes progress, for {}",
                    human_seconds(seconds(now_ - *verdict.since))));
  }

  // Members that live, but whose group failed.
  void judge_failures() {
    std::optional<Moment> since;
    std::string trouble;
    for (const WorkerState* member : staying_) {
      const WorkerState& found = *member;
      if (found.beat.broken == 0 || found.beat.broken > state_.highest) continue;
      invalid_through_ = std::max(invalid_through_, found.beat.broken);
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
    quarantine_one();
  }

  void quarantine_one() {
    const Member* victim = one_to_quarantine(result_.conflicts, stay_, options_.tries);
    if (!victim) return;
    const std::string reason = fmt::format(
        "it could not work with others in {} rosters; it may rejoin in {}", options_.tries,
        human_seconds(seconds(quarantine_time(state_, victim->key.id, options_))));
    say(fmt::format("worker {} was removed: {}", victim->key.id, reason));
    result_.out.push_back(
        {.who = victim->key, .reason = reason, .cause = RemovalCause::kQuarantined});
    std::erase_if(stay_,
                  [&, key = victim->key](const Member& member) { return member.key == key; });
  }

  void find_candidates() {
    std::vector<const WorkerState*> candidates;
    for (const auto& [id, worker] : state_.workers) {
      const WorkerKey& key = worker.key();
      // One that holds a roster was a member: it still is, or it was removed and must rejoin.
      if (census_.is_member(worker) || worker.join.held.number != 0 || worker.beat.leaving ||
          gone(key) || std::ranges::find(leaving_, key) != leaving_.end() ||
          state_.current.is_leaving(key)) {
        continue;
      }
      const auto quarantine = state_.quarantines.find(id);
      if (quarantine != state_.quarantines.end() && !reached(quarantine->second.until)) continue;
      candidates.push_back(&worker);
    }
    std::ranges::sort(candidates, {}, [](const WorkerState* worker) {
      return std::pair(worker->joined, worker->key().id);
    });
    Room room(options_, stay_);
    for (const WorkerState* candidate : candidates) {
      const RoleOptions* role = options_.role(candidate->join.role);
      if (!role) continue;
      Member member{.key = candidate->key(),
                    .host = candidate->join.host,
                    .lane_threads = candidate->join.lane_threads,
                    .lanes = {},
                    .role = role->name,
                    .groups = options_.groups_of(*role, candidate->join.site)};
      if (role->computes_lanes && !room.has_place(member)) {
        ++spare_;
        continue;
      }
      if (role->computes_lanes) room.take(member);
      add_.push_back(std::move(member));
    }
  }

  // The present roster was itself issued because of a loss.
  bool losing() const { return state_.lost; }

  bool gathering() {
    if (state_.current.number != 0 || !state_.first_join) return false;
    // More than can be members need not be waited for. With sites, that depends on where those who
    // are missing are.
    const int32_t expected = options_.site_workers == 1
                                 ? std::min(options_.expected, options_.most_workers())
                                 : options_.expected;
    return options_.trainers(add_) + spare_ < expected &&
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
      return finish(
          fmt::format("{} of {} workers have joined", options_.trainers(add_), options_.expected));
    }
    const int32_t size = options_.trainers(stay_) + options_.trainers(add_);
    Roster next = begin_next();
    next.waiting = size < options_.min_workers;
    for (const Member& member : add_) say(fmt::format("worker {} joins", member.key.id));
    for (const WorkerKey& key : leaving_) {
      if (state_.current.has(key)) say(fmt::format("worker {} leaves", key.id));
    }
    next.members = stay_;
    next.members.insert(next.members.end(), add_.begin(), add_.end());
    if (next.waiting) {
      say(fmt::format("waiting: {} of at least {} workers have joined", size,
                      options_.min_workers));
      for (Member& member : next.members) member.lanes.clear();
    } else {
      give_lanes(next.members);
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
    Roster next = begin_next();
    next.members = roster.members;
    const LanePlan plan = give_lanes(next.members);
    if (plan.moves == 0) return false;
    say(fmt::format("lanes follow speed: {} of {} move, a step takes {:.3g} s instead of {:.3g} s",
                    plan.moves, options_.lanes, plan.step_seconds, plan.before_seconds));
    put(std::move(next));
    return true;
  }

  Roster begin_next() const {
    Roster next;
    next.number = number_after(state_.highest, options_.term);
    next.job = options_.job;
    next.invalid_through = std::max(state_.current.invalid_through, invalid_through_);
    next.leaving = leaving_;
    return next;
  }

  void put(Roster next) {
    result_.lost = lost_;
    next.reason = fmt::format("{}", fmt::join(why_, "; "));
    result_.reason = next.reason;
    result_.roster = std::move(next);
  }

  // Shares the lanes among those that compute them, by their speed. Of a site the first one gets
  // those of all.
  LanePlan give_lanes(std::vector<Member>& members) const {
    std::vector<LaneWorker> workers;
    std::vector<Member*> trainers;
    std::map<std::string_view, size_t> sites;  // place in `workers`
    for (Member& member : members) {
      if (!options_.computes_lanes(member.role)) continue;
      const auto site = member.site();
      if (const auto found = sites.find(site); !site.empty() && found != sites.end()) {
        auto& lanes = workers[found->second].lanes;
        lanes.insert(lanes.end(), member.lanes.begin(), member.lanes.end());
        member.lanes.clear();
        continue;
      }
      sites.emplace(site, workers.size());
      const WorkerState* found = state_.find(member.key);
      trainers.push_back(&member);
      workers.push_back({.lanes = member.lanes,
                         .lane_seconds = found ? found->lane_seconds : 0,
                         .lane_threads = member.lane_threads});
    }
    LanePlan plan = plan_lanes(workers, {.lanes = options_.lanes, .gain = options_.rebalance_gain});
    for (size_t i = 0; i < trainers.size(); ++i) trainers[i]->lanes = plan.lanes[i];
    return plan;
  }

 public:
  static Duration quarantine_time(const State& state, const std::string& id,
                                  const Options& options) {
    const auto found = state.quarantines.find(id);
    const int32_t times = found == state.quarantines.end() ? 0 : found->second.times;
    return std::min<Duration>(options.quarantine * (int64_t{1} << std::min(times, 20)),
                              options.longest_quarantine);
  }

 private:
  const Moment now_;
  const State& state_;
  const Options& options_;
  const Census census_;
  Decision result_;
  std::vector<std::string> why_;
  std::vector<const WorkerState*> accusers_;  // who report that a member is faulty
  bool settled_ = false;                      // every member is in the group of the present roster
  bool lost_ = false;                         // the present roster cannot go on
  bool leaves_ = false;                       // a member asked to go
  RosterNumber invalid_through_ = 0;
  std::vector<Member> stay_;
  std::vector<const WorkerState*> staying_;  // the same
  std::vector<Member> add_;
  int32_t spare_ = 0;  // candidates for whom there is no room
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
      const Duration time = Deciding::quarantine_time(state, removal.who.id, options);
      Quarantine& quarantine = state.quarantines[removal.who.id];
      quarantine.until = now + time;
      ++quarantine.times;
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
