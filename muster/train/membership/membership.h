// One worker's membership in a multi-worker job: its connection to the coordinator, and the group
// of the present roster. The protocol is roster::Follower's; this drives it with a real client and
// real groups.
//
// A worker's life:
//
//   enter()       waits for a roster that has this worker, forms its group, reconciles the state
//   with
//                 the others (recovery.h), takes its lanes
//   run a step, evaluate, ... with the session, together with the others
//   committed()   after each step; true: the roster changes by plan, enter() again
//   lost()        a collective failed; true: because of the group, enter() again
//
// until the job is done (finished()) or this worker has left (leave(), then enter() says so). A
// worker that was removed while it was suspended or cut off learns it here, rejoins and receives
// the state of the others.
//
// Threads: the client's (roster/client.h), which aborts the group as soon as a roster says that it
// must be left; that is what wakes a worker that waits for a peer that hangs. All calls belong to
// one thread, except where it is said.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/log.h"
#include "muster/base/result.h"
#include "muster/comm/gloo_group.h"
#include "muster/comm/measure_links.h"
#include "muster/roster/client.h"
#include "muster/train/membership/recovery.h"
#include "muster/train/session.h"

namespace muster::train {

struct MembershipOptions {
  std::vector<std::string> coordinators;  // addresses, tried in turn
  std::string job;
  std::string id;                  // of this worker; its replacement has the same
  std::string host = "127.0.0.1";  // where peers reach this machine
  std::string site;                // empty: none

  int64_t process = 0;
  // Timeout of one collective. A backstop: the coordinator normally detects a hung worker first.
  Duration timeout = std::chrono::minutes(10);
  // For connecting to all members of a roster once their addresses are known.
  // A peer that cannot be reached at all is reported earlier (comm/peer_watch.h).
  Duration connecting = roster::kConnectTimeout;
  // How long a worker without a group tries to reach the coordinator before it exits with an error.
  Duration orphaned = std::chrono::seconds(60);
  bool shared_memory = true;
};

class Membership {
 public:
  // The job's data and model must be ready, and its state initial: its fingerprint is computed, and
  // from then on others may wait for this worker. The session reports its progress here until this
  // is destroyed.
  static Result<std::unique_ptr<Membership>> join(Session& session, MembershipOptions options,
                                                  const Clock& clock, Log& log);
  ~Membership();

  // Where the state comes from if no member has it.
  struct Sources {
    // The newest step that can be restored, as far as is known without reading it; 0: the
    // beginning. `known`: the last rollback that this worker knows of, and with `repair` it also
    // sees to it that the checkpoints know of it.
    std::function<Result<Recovery::Restorable>(const roster::Rollback& known, bool repair)>
        restorable;
    Recovery::Restore restore;
    std::function<bool()> give_up;  // asked now and then while there is nothing to do but wait
    // An audit found a difference: `what` for people, `rollback` if states are invalid from now on.
    // `keep`: this worker is to make it known to the checkpoints.
    std::function<Status(const std::string& what, const roster::Rollback* rollback, bool keep)>
        roll_back;
  };
  struct Entry {
    enum class How : uint8_t {
      kIn,        // in a group, at one position with the others
      kReleased,  // it had asked to leave, and may exit
      kFinished,  // the job has ended without it
      kGaveUp,
    };
    How how = How::kIn;
    bool rolled = false;       // it applied the others' last commit
    bool other_state = false;  // received or restored: not the state it had before
    bool rejoined = false;     // it had been removed: others may have had its place meanwhile
    // The last one: what it made invalid is not part of the state.
    // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
    roster::Rollback rollback = {};
  };
  // An error only if this worker cannot go on: it was refused, its state cannot be restored, or
  // there is no coordinator.
  Result<Entry> enter(const Sources& sources);

  // In the group of the trainers.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const roster::Roster& roster() const { return *roster_; }
  bool connected() const { return client_->connected(); }
  bool has_state() const { return recovery_.has_state(); }
  // Since it was last in a group: others may have gone on without it.
  bool was_removed() const { return was_removed_; }

  // Collective over the group: the maximum of each byte, and waiting for all.
  Status combine(std::span<uint8_t> bytes);
  Status barrier();
  // Collective, of at least two.
  Result<comm::Links> measure_links();

  // Seconds that this worker has waited for others, since this was asked last.
  double take_waited() { return std::exchange(waited_, 0.0); }

  // For the commit message: 1 if this worker knows of a newer roster.
  uint8_t roster_byte() const { return client_->commit_byte(); }
  // After a commit: `agreed` is the byte as all members have it.
  bool committed(uint8_t agreed);
  bool lost(const Error& error);

  // Collective: compares the whole state of all members. Nothing: it is the same.
  Result<std::optional<Verdict>> compare_states();
  // Collective, after an audit found a difference in a step: who is faulty.
  Result<Verdict> judge();
  // All members have come to this verdict: who is affected gives up its state, the coordinator
  // removes who is faulty; enter() again. An error if for the third time nobody could be accused
  // and the job has made no progress in between.
  Status reject(const Verdict& verdict, const Sources& sources);
  // A difference was found, but the group failed before there was a verdict: the state may be
  // wrong.
  Status give_up_state(const std::string& why, const Sources& sources);
  // This worker's own memory is damaged: the coordinator removes it, and the others go on.
  void report_own_damage();

  void leave() { client_->leave(); }
  void finished() { client_->finished(); }
  // From any thread: the group fails, and so does the attempt to form one.
  void abort(const std::string& why);
  // From any thread: this worker's own work makes progress.
  void progress() { client_->progress(); }

 private:
  class CoordinatorRendezvous;
  Membership(Session& session, MembershipOptions options, Log& log);
  roster::ClientOptions client_options(const JobFingerprint& fingerprint);
  // Nothing: the group failed, which is reported.
  Result<std::optional<Entry>> enter_group(const roster::RosterPtr& roster, const Sources& sources);
  // An error: some group failed, which is reported.
  Status form(const roster::RosterPtr& roster);
  // Of these members, of which this worker is one.
  Result<std::shared_ptr<comm::Group>> form_group(const std::vector<const roster::Member*>& members,
                                                  comm::Rendezvous& rendezvous);
  // Where workers of a site compute together: group_ becomes one in which data crosses from one
  // site to another once.
  Status form_sites();
  std::vector<const roster::Member*> members_at(const std::vector<int>& ranks) const;
  void abort_groups(const std::string& why);  // mutex_ is held
  void drop_group();
  std::string describe(const Verdict& verdict) const;
  // `members`: of the group that failed.
  void report_failure(const comm::GroupFailure& failure,
                      const std::vector<const roster::Member*>& members,
                      const std::string& trouble);

  Session& session_;
  const MembershipOptions options_;
  Log& log_;
  Vitals vitals_;
  std::chrono::steady_clock::time_point waits_since_;
  double waited_ = 0;
  Recovery recovery_;
  // Verdicts in a row that could not tell who is faulty, and where the last one led back to.
  int unresolved_ = 0;
  uint64_t unresolved_step_ = 0;
  bool was_removed_ = false;
  roster::WorkerKey key_;                                                // as roster_ has it
  roster::RosterPtr roster_ = std::make_shared<const roster::Roster>();  // of the group
  std::vector<const roster::Member*> members_;                           // of the group, by rank
  int rank_ = -1;                                                        // in the group
  std::vector<std::vector<int>> sites_;  // their ranks in the group; the leader first
  size_t own_site_ = 0;                  // among sites_

  std::shared_ptr<comm::GlooDevice> device_;

  std::mutex mutex_;
  // Guarded by mutex_, because the client's thread aborts them.
  std::shared_ptr<comm::Group> group_;
  std::shared_ptr<comm::Group> all_;   // the same, or what it is made of
  std::shared_ptr<comm::Group> site_;  // null: it computes with nobody of its site

  roster::RosterNumber forming_ = 0;  // the roster whose group is being made or used
  std::stop_source stop_forming_;

  std::unique_ptr<roster::Client> client_;  // last: its thread uses the rest
};

}  // namespace muster::train
