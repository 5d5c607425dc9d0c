#include "muster/roster/registrar.h"

#include <algorithm>
#include <utility>

#include "muster/base/text.h"
#include "muster/roster/lanes.h"

namespace muster::roster {

namespace {

constexpr size_t kLongestTrouble = 1000;  // bytes, of what a worker says went wrong

}  // namespace

std::string Registrar::shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

Registrar::Registrar(Options options, Moment now)
    : options_(std::move(options)), first_term_(options_.term) {
  state_.started = now;
  state_.issued = now;
  state_.rebalanced = now;
  state_.learning = !options_.fresh;
  settle(now);
}

bool Registrar::alive(Moment now, const WorkerState& worker) const {
  return !worker.disconnected && worker.exited.empty() && now < worker.heard + options_.lease;
}

std::optional<Refused> Registrar::why_refused(Moment now, const JoinRequest& request) const {
  if (request.job != options_.job) {
    return Refused{
        fmt::format("this is the coordinator of job '{}', not of '{}'", options_.job, request.job),
        false};
  }
  if (request.key.id.empty() || request.lane_threads < 1) {
    return Refused{"a worker needs an id and at least one lane thread", false};
  }
  if (!options_.role(request.role)) {
    return Refused{fmt::format("job '{}' has no workers with the role '{}'", options_.job,
                               shortened(request.role, kLongestName)),
                   false};
  }
  const JobFingerprint& own = request.fingerprint;
  for (const std::string* text : {&request.key.id, &request.host, &request.site, &own.kernels,
                                  &own.model, &own.model_file, &own.train_data, &own.test_data}) {
    if (text->size() > kLongestName) return Refused{"a name has more than 256 bytes", false};
  }
  const JobFingerprint& job = options_.fingerprint.empty() ? own : options_.fingerprint;
  if (const auto why = why_not_join(own, job, options_.tolerant); !why.empty()) {
    return Refused{fmt::format("worker {} {}", request.key.id, why), false};
  }
  if (auto held = check_held(request); !held.ok()) return Refused{held.error().message(), false};
  const auto found = state_.workers.find(request.key.id);
  if (found != state_.workers.end() && found->second.key() != request.key &&
      alive(now, found->second)) {
    // The one that is there keeps the slot until it is known to be gone: two processes that believe
    // to be one worker must not put each other out in turns.
    return Refused{fmt::format("another process is worker {}, and it is alive", request.key.id),
                   true};
  }
  return std::nullopt;
}

// The present roster is another one: what is kept about it is made anew.
void Registrar::take_up_current() {
  const Roster& roster = state_.current;
  differences_.clear();
  exchanges_.clear();
  ranks_.clear();
  in_group_ = 0;
  std::map<std::string, std::vector<std::string>> groups;
  for (const Member& member : roster.members) {
    for (const std::string& group : member.groups) groups[group].push_back(member.key.id);
  }
  for (auto& [group, ids] : groups) exchanges_.try_emplace(group, std::move(ids));
  for (size_t rank = 0; rank < roster.members.size(); ++rank) {
    const WorkerKey& key = roster.members[rank].key;
    ranks_[key.id] = static_cast<int>(rank);
    const auto found = state_.workers.find(key.id);
    if (found != state_.workers.end() && found->second.key() == key &&
        found->second.beat.group == roster.number) {
      ++in_group_;
    }
  }
}

int Registrar::rank_of(const WorkerKey& key) const {
  const auto found = ranks_.find(key.id);
  if (found == ranks_.end()) return -1;
  const Member& member = state_.current.members[static_cast<size_t>(found->second)];
  return member.key == key ? found->second : -1;
}

void Registrar::connected(SessionId session) { sessions_[session] = {}; }

void Registrar::join(Moment now, SessionId session, const JoinRequest& request) {
  const auto open = sessions_.find(session);
  if (open == sessions_.end() || !open->second.key.id.empty()) return;  // over, or said twice
  if (auto refused = why_refused(now, request)) {
    record(now, fmt::format("worker {} is refused: {}", shortened(request.key.id, kLongestName),
                            shortened(refused->reason, kLongestTrouble)));
    sessions_.erase(open);
    send(session, std::move(*refused), true);
    return;
  }
  if (state_.ended) {
    sessions_.erase(open);
    send(session, *state_.ended, true);
    return;
  }
  auto found = state_.workers.find(request.key.id);
  if (found != state_.workers.end() && found->second.key() != request.key) {
    // Its slot was started again before we heard that it is gone.
    if (found->second.exited.empty()) found->second.exited = "its slot was started again";
    settle_at_once(now);
    found = state_.workers.end();
  }
  learn(now, request);
  const WorkerKey& key = request.key;
  const bool in = state_.current.has(key) || state_.current.is_leaving(key);
  if (request.held.number != 0 && !in && !state_.learning) {
    const std::string why =
        fmt::format("roster {} does not contain it", sequence_of(state_.current.number));
    record(now, fmt::format("worker {} reconnects after it was removed: {}", key.id, why));
    sessions_.erase(session);
    send(session, Removed{why, RemovalCause::kDisconnected}, true);
    settle(now);
    return;
  }
  if (options_.fingerprint.empty()) options_.fingerprint = request.fingerprint;
  if (found == state_.workers.end()) {
    if (const auto w = other_numerics(request.fingerprint, options_.fingerprint); !w.empty()) {
      record(now, fmt::format("warning: worker {} {}", key.id, w));
    }
    WorkerState worker;
    worker.join = request;
    worker.joined = worker.progressed = worker.still_until = now;
    worker.beat.known = request.held.number;
    found = state_.workers.insert_or_assign(key.id, std::move(worker)).first;
    if (!state_.first_join) state_.first_join = now;
  }
  found->second.heard = now;
  found->second.disconnected.reset();
  if (const auto old = session_of_.find(key.id);
      old != session_of_.end() && old->second != session) {
    sessions_.erase(old->second);
    send(old->second,
         Removed{"another connection of this worker has taken its place",
                 RemovalCause::kDisconnected},
         true);
  }
  session_of_[key.id] = session;
  sessions_[session].key = key;
  send(session, Welcome{options_.lease, options_.heartbeat});
  settle(now);
  // One that shows itself again gets the present roster even if nothing has changed.
  if (const auto again = sessions_.find(session); again != sessions_.end() && in) {
    send_roster(session, again->second);
  }
}

WorkerState* Registrar::find(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  const auto worker = state_.workers.find(found->second.key.id);
  if (worker == state_.workers.end() || worker->second.key() != found->second.key) return nullptr;
  return &worker->second;
}

void Registrar::heartbeat(Moment now, SessionId session, const Heartbeat& beat) {
  WorkerState* worker = find(session);
  if (!worker) return;
  // One that comes twice or late says nothing about now: it does not renew the lease either.
  if (beat.sequence <= worker->beat.sequence) return;
  worker->heard = worker->still_until = now;
  step_ = std::max(step_, beat.step);
  const Heartbeat before = std::exchange(worker->beat, beat);
  // They go to other workers, into the status and the log.
  worker->beat.suspect = shortened(beat.suspect, kLongestName);
  worker->beat.faulty = shortened(beat.faulty, kLongestName);
  worker->beat.trouble = shortened(beat.trouble, kLongestTrouble);
  if (beat.leaving && !before.leaving) worker->asked_to_leave = now;
  const bool moved = beat.group != before.group;
  if (moved && rank_of(worker->key()) >= 0) {
    if (beat.group == state_.current.number) ++in_group_;
    if (before.group == state_.current.number) --in_group_;
  }
  if (moved || beat.progress != before.progress || beat.activity != before.activity) {
    // Not before it joined: a coordinator that was restarted has seen nothing of that time.
    worker->progressed = std::max(now - beat.still, worker->joined);
  }
  if (beat.lane_seconds > 0 && beat.step != before.step) {
    worker->lane_seconds = smooth(worker->lane_seconds, beat.lane_seconds);
  }
  // A commit in the present group: its members can work together.
  if (beat.group == state_.current.number && !moved && beat.step > before.step) {
    state_.failures = 0;
    state_.conflicts.clear();
    state_.awaited.reset();
  }
  // That one member more is in the group matters when it was the last: with thousands of them,
  // deciding each time would be all that the coordinator does.
  const bool complete = moved && in_group_ == state_.current.members.size();
  bool news = complete || beat.leaving != before.leaving;
  if (moved && !complete) release_leavers(now);
  if (beat.broken != before.broken || beat.suspect != before.suspect ||
      beat.faulty != before.faulty) {
    note_failure(now, *worker, beat);
    news = true;
  }
  if (beat.known > state_.highest && plausible(beat.known)) {
    heard_of(beat.known);
    news = true;
  }
  if (beat.finished && (rank_of(worker->key()) >= 0 || state_.current.is_leaving(worker->key()))) {
    end(now, {true, fmt::format("the job is finished after step {}", beat.step)});
    return;
  }
  if (beat.activity == Activity::kLeft && before.activity != Activity::kLeft) {
    left_.insert(worker->key().id);
    news = true;
  }
  if (news || (wake_ && now >= *wake_)) settle(now);
}

void Registrar::note_failure(Moment now, WorkerState& worker, const Heartbeat& beat) {
  worker.broke = now;
  if (beat.broken != state_.current.number) note_earlier_conflict(worker);
  if (beat.broken == 0 || beat.broken != state_.current.number) return;
  record(now, fmt::format("worker {}: its group failed: {}", worker.key().id, worker.beat.trouble));
}

// A group that was about to be left for the present roster by plan has failed. If two of its
// members could not reach each other, they will not in the next one either.
void Registrar::note_earlier_conflict(const WorkerState& worker) {
  const Heartbeat& beat = worker.beat;
  const auto roster = std::ranges::find(state_.history, beat.broken, &Roster::number);
  const auto other = state_.workers.find(beat.suspect);
  if (roster == state_.history.end() || other == state_.workers.end()) return;
  for (const WorkerKey& key : {worker.key(), other->second.key()}) {
    if (!roster->has(key) || rank_of(key) < 0) return;
  }
  if (beat.suspect == worker.key().id) return;
  count_conflict(worker.key().id, beat.suspect, beat.broken, state_.conflicts);
}

void Registrar::disconnected(Moment now, SessionId session) {
  if (WorkerState* worker = find(session)) {
    worker->disconnected = now;
    session_of_.erase(worker->key().id);
  }
  sessions_.erase(session);
  settle(now);
}

void Registrar::exited(Moment now, const std::string& id, int64_t process, const std::string& how) {
  const auto found = state_.workers.find(id);
  if (found == state_.workers.end()) return;
  const int64_t there = found->second.join.process;
  if (process != 0 && there != 0 && process != there) return;  // the one before it
  found->second.exited = how;
  settle(now);
}

void Registrar::stop(Moment now, const std::string& reason) {
  if (!state_.ended) end(now, {false, reason});
}

// Sessions are closed, workers are kept as they were last: status goes on showing them.
void Registrar::end(Moment now, Ended how) {
  record(now, how.finished ? how.reason : "the job is stopped: " + how.reason);
  state_.ended = std::move(how);
  for (const auto& [id, session] : session_of_) send(session, *state_.ended, true);
  // Those that have not said yet who they are will be told when they do.
  std::erase_if(sessions_, [](const auto& one) { return !one.second.key.id.empty(); });
  session_of_.clear();
  settle(now);
}

void Registrar::resumed(Moment now, Duration late) {
  state_.resumed = now;
  record(now, fmt::format("this coordinator was suspended for {}: leases are extended by as much",
                          human_seconds(seconds(late))));
}

void Registrar::tick(Moment now) { settle(now); }

void Registrar::decide_now(Moment now) {
  deferring_ = false;
  if (std::exchange(undecided_, false)) settle_at_once(now);
}

void Registrar::settle(Moment now) {
  if (deferring_) {
    undecided_ = true;
  } else {
    settle_at_once(now);
  }
}

// Decides until nothing more is to be done.
void Registrar::settle_at_once(Moment now) {
  for (int round = 0; round < 8; ++round) {
    const Decision decision = decide(now, state_, options_);
    const RosterNumber before = state_.current.number;
    for (const Removal& removal : decision.out) remove(now, removal);
    carry_out(now, decision, state_, options_);
    standing_ = decision.reason;
    wake_ = decision.look_again;
    if (decision.learned) end_learning();
    if (decision.roster) {
      fail_exchanges(before);
      issued_ = state_.current.number;
      announce(now);
    } else if (decision.learned) {
      const Roster& adopted = state_.current;
      if (adopted.number != 0 && new_rosters_.size() < kEvents) {
        // No news for its members, but for those who keep a record of this coordinator's rosters.
        record(now,
               fmt::format("roster {}: adopted from its members", sequence_of(adopted.number)));
        new_rosters_.push_back({std::make_shared<const Roster>(adopted), step_});
      }
      tell_all();
    }
    if (!decision.roster && decision.out.empty() && !decision.learned) break;
  }
  release_leavers(now);
}

void Registrar::remove(Moment now, const Removal& removal) {
  const auto found = state_.workers.find(removal.who.id);
  if (found == state_.workers.end()) return;
  const bool by_plan = found->second.beat.activity == Activity::kLeft;
  record(now, fmt::format("worker {} {}", removal.who.id,
                          by_plan ? std::string("has left") : "was removed: " + removal.reason));
  gone_.push_back({removal.who,
                   found->second.join.process,
                   removal.reason,
                   by_plan ? RemovalCause::kLeft : removal.cause,
                   {}});
  end_session(removal.who, Removed{removal.reason, removal.cause});
}

void Registrar::end_session(const WorkerKey& key, ToWorker last) {
  const auto found = session_of_.find(key.id);
  if (found == session_of_.end()) return;
  const auto session = sessions_.find(found->second);
  if (session != sessions_.end() && session->second.key != key) return;
  send(found->second, std::move(last), true);
  sessions_.erase(found->second);
  session_of_.erase(found);
}

void Registrar::announce(Moment now) {
  const Roster& roster = state_.current;
  record(now, fmt::format("roster {}: {}", sequence_of(roster.number), roster.reason));
  if (new_rosters_.size() < kEvents) {
    new_rosters_.push_back({std::make_shared<const Roster>(roster), step_});
  }
  take_up_current();
  tell_all();
}

// Sends the present roster to all whom it concerns and who do not have it.
void Registrar::tell_all() {
  const auto tell = [&](const WorkerKey& key) {
    const auto found = session_of_.find(key.id);
    if (found == session_of_.end()) return;
    const auto session = sessions_.find(found->second);
    if (session != sessions_.end() && session->second.key == key) {
      send_roster(found->second, session->second);
    }
  };
  for (const Member& member : state_.current.members) tell(member.key);
  for (const WorkerKey& key : state_.current.leaving) tell(key);
}

void Registrar::send_roster(SessionId id, Session& session) {
  if (session.sent == state_.current.number) return;
  auto found = differences_.find(session.sent);
  if (found == differences_.end()) {
    const auto base = std::ranges::find(state_.history, session.sent, &Roster::number);
    const bool known = session.sent != 0 && base != state_.history.end();
    auto made =
        std::make_shared<const ToWorker>(difference(known ? *base : Roster{}, state_.current));
    found = differences_.emplace(session.sent, std::move(made)).first;
  }
  send(id, found->second);
  session.sent = state_.current.number;
}

// One that leaves may go when every member has left the group it was in: then nobody can still be
// reading from it.
void Registrar::release_leavers(Moment now) {
  const Roster& roster = state_.current;
  release_left(now);
  if (roster.leaving.empty()) return;
  for (const Member& member : roster.members) {
    const auto found = state_.workers.find(member.key.id);
    if (found == state_.workers.end()) continue;
    const RosterNumber group = found->second.beat.group;
    const bool moved_on =
        group == roster.number || found->second.offered == roster.number ||
        (roster.waiting && group == 0 && found->second.beat.known == roster.number);
    if (!moved_on) return;
  }
  for (const WorkerKey& key : roster.leaving) release(now, key);
}

// Those that have left their last group, and whom the present roster does not know any more: a
// member was lost before it had moved on, and nobody is still reading from the group before.
void Registrar::release_left(Moment now) {
  std::erase_if(left_, [&](const std::string& id) { return !state_.workers.contains(id); });
  for (const std::string& id : left_) {
    const WorkerState& worker = state_.workers.at(id);
    if (worker.beat.activity == Activity::kLeft && rank_of(worker.key()) < 0 &&
        !state_.current.is_leaving(worker.key())) {
      release(now, worker.key());
    }
  }
}

void Registrar::release(Moment now, const WorkerKey& key) {
  const auto found = session_of_.find(key.id);
  if (found == session_of_.end()) return;
  const auto session = sessions_.find(found->second);
  if (session == sessions_.end() || session->second.key != key || session->second.released) return;
  session->second.released = true;
  const auto worker = state_.workers.find(key.id);
  if (worker != state_.workers.end()) worker->second.released = now;
  send(found->second, Released{});
}

void Registrar::send(SessionId session, ToWorker message, bool close) {
  outgoing_.push_back({session, std::make_shared<const ToWorker>(std::move(message)), close});
}

void Registrar::send(SessionId session, std::shared_ptr<const ToWorker> message) {
  outgoing_.push_back({session, std::move(message), false});
}

void Registrar::record(Moment now, std::string text) {
  events_.push_back({now, state_.current.number, std::move(text)});
  if (new_events_.size() < kEvents) new_events_.push_back(events_.back());
  if (events_.size() > kEvents) events_.pop_front();
}

}  // namespace muster::roster
