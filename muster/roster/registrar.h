// The coordinator without its wires: takes what workers and launchers say, decides (decide.h), and
// says what is to be sent to whom. No threads, no clock, no connections: the time is passed in. The
// gRPC server (coordinator.h) and the simulation drive the same Registrar.
//
// A session is one connection of a worker. What arrives in a session that was replaced, or from a
// key that was removed, is answered with Removed and changes nothing.
//
// All state is soft. A Registrar that begins with Options::fresh = false listens for Options::grace
// to the workers, which re-register with the roster they hold; it adopts the newest of them as it
// is, so that a restart of the coordinator interrupts no worker.
//
// Not safe for concurrent use.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "muster/roster/address_exchange.h"
#include "muster/roster/decide.h"
#include "muster/roster/messages.h"
#include "muster/roster/types.h"

namespace muster::roster {

using SessionId = uint64_t;

struct Outgoing {
  SessionId session = 0;
  // The same object for all sessions that are told the same: a roster or the addresses for
  // thousands of workers are made, and put into bytes, once.
  std::shared_ptr<const ToWorker> message;
  bool close = false;  // nothing will follow in this session
};

// A worker that was a member and is no longer.
struct Gone {
  WorkerKey key;
  int64_t process = 0;
  std::string reason;
  RemovalCause cause = RemovalCause::kExited;
  Moment when;  // set by the Coordinator: real time
};

// A roster, when it was issued, or adopted from the workers of another coordinator.
struct Issued {
  RosterPtr roster;
  uint64_t step = 0;  // the newest that any worker was heard to have committed
};

class Registrar {
 public:
  // `options` must be valid.
  Registrar(Options options, Moment now);

  // A connection is there; nothing is known of it yet. Numbers of sessions are never used again.
  void connected(SessionId session);
  void join(Moment now, SessionId session, const JoinRequest& request);
  void heartbeat(Moment now, SessionId session, const Heartbeat& beat);
  void offer_addresses(Moment now, SessionId session, RosterNumber roster, const std::string& group,
                       std::string blob);
  void disconnected(Moment now, SessionId session);
  // A launcher saw the process of this slot end. `process`: its pid; 0: whichever is in the slot.
  void exited(Moment now, const std::string& id, int64_t process, const std::string& how);
  // The job is stopped before it is finished; nothing happens if it has ended already. All workers
  // are told so, and those who come later.
  void stop(Moment now, const std::string& reason);
  // The coordinator was suspended for `late`, by which `now` and all later times are set back. Its
  // workers' connections may have broken meanwhile: they get Options::grace to come back.
  void resumed(Moment now, Duration late);
  // To be called when wake() has come, or at any other time.
  void tick(Moment now);
  // From defer_decisions() to decide_now(), what arrives is only noted, and then decided on
  // together. A decision looks at all workers: with thousands that join or are lost at a time, one
  // for each of them would take so long that the heartbeats of the others wait behind it until
  // their leases have expired.
  void defer_decisions() { deferring_ = true; }
  void decide_now(Moment now);

  // What is to be sent, in order; empty afterwards.
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  // The workers that left or were removed since the last call: their launcher may want to kill or
  // to restart them.
  std::vector<Gone> take_gone() { return std::exchange(gone_, {}); }
  // When tick() is due; nothing: not before something happens.
  std::optional<Moment> wake() const { return wake_; }

  // The newest roster that this coordinator issued itself; 0: none yet.
  RosterNumber issued() const { return issued_; }
  const State& state() const { return state_; }
  const Options& options() const { return options_; }
  // The newest step that any worker was heard to have committed.
  uint64_t step() const { return step_; }
  // Why things are as they are: the last decision's reason.
  const std::string& standing() const { return standing_; }
  // The last kEvents things that happened, oldest first.
  const std::deque<Event>& events() const { return events_; }
  static constexpr size_t kEvents = 200;
  // Those since the last call (but not more than kEvents).
  std::vector<Event> take_new_events() { return std::exchange(new_events_, {}); }
  // The rosters since the last call (but not more than kEvents), for a record of who had which
  // lanes.
  std::vector<Issued> take_issued() { return std::exchange(new_rosters_, {}); }

 private:
  struct Session {
    WorkerKey key;          // empty: it has not said yet
    RosterNumber sent = 0;  // the newest roster it was sent
    bool released = false;
  };

  struct GroupExchange {
    explicit GroupExchange(std::vector<std::string> members);
    std::vector<std::string> ids;                // of its members, by rank
    std::unordered_map<std::string, int> ranks;  // by id
    AddressExchange addresses;
  };

  static constexpr size_t kLongestName = 256;  // bytes, of what a worker calls itself or a peer
  static std::string shortened(const std::string& text, size_t most);

  std::optional<Refused> why_refused(Moment now, const JoinRequest& request) const;
  bool alive(Moment now, const WorkerState& worker) const;
  void learn(Moment now, const JoinRequest& request);
  Status check_held(const JoinRequest& request) const;
  WorkerState* find(SessionId session);
  void note_earlier_conflict(const WorkerState& worker);
  void note_failure(Moment now, WorkerState& worker, const Heartbeat& beat);
  void settle(Moment now);
  void settle_at_once(Moment now);
  void remove(Moment now, const Removal& removal);
  void end_learning();
  void end(Moment now, Ended how);
  void announce(Moment now);
  void tell_all();
  void send_roster(SessionId id, Session& session);
  void fail_exchanges(RosterNumber old);
  void note_awaited(WorkerState& worker) const;
  void take_up_current();
  int rank_of(const WorkerKey& key) const;
  void release_leavers(Moment now);
  void release_left(Moment now);
  void release(Moment now, const WorkerKey& key);
  void end_session(const WorkerKey& key, ToWorker last);
  bool plausible(RosterNumber number) const;
  void heard_of(RosterNumber number);
  Addresses superseded(RosterNumber roster, const std::string& group) const;
  void send(SessionId session, ToWorker message, bool close = false);
  void send(SessionId session, std::shared_ptr<const ToWorker> message);
  void record(Moment now, std::string text);

  Options options_;
  const uint64_t first_term_;  // as it was given; options_.term may rise
  State state_;
  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<std::string, SessionId> session_of_;  // by worker id
  // To the present roster, by base: RosterDiffs.
  std::map<RosterNumber, std::shared_ptr<const ToWorker>> differences_;
  std::unordered_map<std::string, int> ranks_;  // in the present roster, by worker id
  size_t in_group_ = 0;                         // members that are in its group
  std::set<std::string> left_;  // workers that have said kLeft, and may be known no more
  std::map<std::string, GroupExchange> exchanges_;  // of the present roster, by group
  std::vector<Outgoing> outgoing_;
  std::vector<Gone> gone_;
  RosterNumber issued_ = 0;
  bool deferring_ = false;
  bool undecided_ = false;  // something was noted meanwhile
  std::optional<Moment> wake_;
  std::string standing_;
  uint64_t step_ = 0;
  std::deque<Event> events_;
  std::vector<Event> new_events_;
  std::vector<Issued> new_rosters_;
};

}  // namespace muster::roster
