// The words of the roster: plain values, used by the decisions, the coordinator, its client, the
// worker and the simulation alike. Nothing here has a thread, a clock or a connection.
//
// A worker is known by its key (id, incarnation). The id is its launcher's slot, and stays the same
// when that slot is started again. The incarnation is a random number that the worker draws each
// time it joins. A key that was removed is never accepted again: a worker that was only suspended
// (SIGSTOP, a cut cable) rejoins with a new incarnation. So a delayed message can never be mistaken
// for one of a present member.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/hash.h"
#include "muster/base/job_fingerprint.h"
#include "muster/base/result.h"

namespace muster::roster {

// Orders the rosters of a job; 0: none. Never issued twice, also not by a coordinator that was
// started again: the high bits are the coordinator's term (see Options::term), the low ones count.
using RosterNumber = uint64_t;
inline constexpr int kSequenceBits = 20;
constexpr uint64_t term_of(RosterNumber number) { return number >> kSequenceBits; }
// What people see: "roster 7". Goes on counting over a restart of the coordinator.
constexpr uint64_t sequence_of(RosterNumber number) {
  return number & ((uint64_t{1} << kSequenceBits) - 1);
}
// The number after every one issued (`highest`), by a coordinator of this term.
RosterNumber number_after(RosterNumber highest, uint64_t term);

struct WorkerKey {
  std::string id;
  uint64_t incarnation = 0;
  auto operator<=>(const WorkerKey&) const = default;
};

// A role says what a worker does in a job; a group is a set of members that communicate among
// themselves. Which of them a job has, and which roles form which group, follows from its strategy
// (roles_of() in job_options.h). So far every strategy has trainers alone.
//
// A site is a set of trainers with fast links between them, such as one office of several; its name
// comes from the hosts file. Where the job deals out replicas, the members of a site compute
// theirs together, and form a group of their own.

inline constexpr std::string_view kTrainer = "trainer";    // role: computes lanes
inline constexpr std::string_view kTrainers = "trainers";  // group: all trainers
inline constexpr std::string_view kSite = "site ";         // group: `site ` and its name

struct Member {
  WorkerKey key;
  std::string host;            // where its machine is reached: a name or an address, for people too
  int32_t lane_threads = 1;    // lanes it computes at the same time
  std::vector<int32_t> lanes;  // ascending; may be empty: it holds the state, ready to take over
  std::string role{kTrainer};
  std::vector<std::string> groups{std::string(kTrainers)};  // in the order in which it forms them
  // The group of its site; empty: it has none.
  std::string_view site() const;
  bool operator==(const Member&) const = default;
};

// A numbered membership view: which workers take part, which groups they form, and which lanes each
// computes.
struct Roster {
  RosterNumber number = 0;
  std::string job;
  // There are fewer workers than workers.min: no group is formed and no step computed; all keep
  // their state and wait.
  bool waiting = false;
  // Groups of this number or an older one are invalid: a member of one leaves it at once.
  RosterNumber invalid_through = 0;
  std::vector<Member> members;
  // Members of an earlier roster that leave gracefully at the next step boundary. That they are in
  // the present group is no reason to abort it.
  std::vector<WorkerKey> leaving;
  std::string reason;  // why it was issued, for people
  bool operator==(const Roster&) const = default;

  const Member* find(const WorkerKey& key) const;
  bool has(const WorkerKey& key) const { return find(key) != nullptr; }
  // Its place in `members`, or -1. Not its rank in a group: see group().
  int rank_of(const WorkerKey& key) const;
  bool is_leaving(const WorkerKey& key) const;
  // The members of this group, in the order of `members`: the rank in a group is the place here.
  // Valid as long as this roster.
  std::vector<const Member*> group(std::string_view name) const;
  // Equal exactly when everything above is, as far as a hash can say.
  uint64_t checksum() const;
};

// An error unless its ids differ, each member is in at least one group and in none twice, and each
// of the `lanes` lanes is given out once (none if it is waiting).
Status check_roster(const Roster& roster, int32_t lanes);

// Rosters are shared between threads and never changed.
using RosterPtr = std::shared_ptr<const Roster>;

// What turns the roster `base` into another one. With base 0: all of it.
//
// Members that stay keep their order; new ones follow. So an exchange of one worker among thousands
// is a message of two entries.
struct RosterDiff {
  RosterNumber base = 0;
  RosterNumber number = 0;
  std::string job;
  bool waiting = false;
  RosterNumber invalid_through = 0;
  std::vector<WorkerKey> removed;
  std::vector<Member> changed;  // new, or the same key with other contents
  std::vector<WorkerKey> leaving;
  std::string reason;
  uint64_t checksum = 0;  // of the result
  bool operator==(const RosterDiff&) const = default;
};

// `to` must keep the order of those it shares with `from`, with new ones behind them; decide()
// does.
RosterDiff difference(const Roster& from, const Roster& to);
// An error if `roster` is not the base, or the result is not what the sender meant: ask for all.
Result<Roster> apply(const Roster& roster, const RosterDiff& diff);

// How far a worker's state is: `step` steps are committed, and `attempt` commits have said that
// the step after them must be done once more with other scales. Both follow from the job alone, so
// equal positions mean equal bits.
struct Position {
  uint64_t step = 0;
  uint32_t attempt = 0;
  auto operator<=>(const Position&) const = default;
  std::string text() const;
};

// What a worker is at, as its heartbeats say.
enum class Activity : uint8_t {
  kIdle = 0,       // no group: waits for a roster
  kForming = 1,    // waits for addresses, connects, agrees
  kComputing = 2,  // its own work; it alone can hold itself up
  kWaiting = 3,    // inside a collective of the group: a peer may hold it up
  kLeft = 4,       // has left its last group at a step boundary, and will not be in another
};
std::string_view activity_name(Activity activity);
// Whether a worker at this is waiting for its peers rather than for its own work.
constexpr bool waits_for_peers(Activity activity) { return activity == Activity::kWaiting; }

// Sent every Options::heartbeat, and at once when `group`, `broken` or `leaving` changes. It says
// how things are, not what has happened, so one that is lost or comes twice does no harm.
struct Heartbeat {
  uint64_t sequence =
      0;  // counts the heartbeats of a worker; an older one that comes late is dropped
  RosterNumber known = 0;   // the newest roster it has
  RosterNumber group = 0;   // the roster of the group it is in; 0: none
  RosterNumber broken = 0;  // its group of this roster failed, or could not be formed; 0: none
  // With broken: the id of a peer that it could not connect to or that was silent, if there is one.
  // Not of one that closed the connection: that one had a reason of its own.
  std::string suspect;
  std::string trouble;  // with broken: what happened, one sentence
  // With broken: the id of a member whose memory or computation an audit found to be wrong
  // (train/audit/audit.h), if there is one.
  std::string faulty;
  Activity activity = Activity::kIdle;
  uint64_t step = 0;        // steps committed
  uint64_t progress = 0;    // goes up whenever its own work gets on; standing still means hung
  Duration still{0};        // for how long progress, activity and group have been as they are
  double lane_seconds = 0;  // time for one lane of one step on one thread; 0: not measured yet
  bool leaving = false;     // wants to go at a step boundary
  bool finished = false;    // the job is done and what it leaves behind is saved: no more rosters
  bool operator==(const Heartbeat&) const = default;
};

// How a worker joins, and how it re-registers with a coordinator that was restarted.
struct JoinRequest {
  WorkerKey key;
  std::string job;
  std::string host;
  std::string role{kTrainer};
  std::string site;  // its name; empty: none
  int32_t lane_threads = 1;
  int64_t process = 0;  // its pid, so that its launcher and we speak of the same one; 0: unknown
  JobFingerprint fingerprint;
  // The roster it is a member of (when it re-registers), or number 0 (when it joins).
  Roster held;
  // Highest number it has ever seen, in this incarnation or an earlier one.
  RosterNumber highest = 0;
  bool operator==(const JoinRequest&) const = default;
};

// Why a worker is no longer a member.
enum class RemovalCause : uint8_t {
  kLeft,          // it asked to leave, and has
  kExited,        // its launcher saw its process exit, or its id was started again
  kDisconnected,  // its connection to the coordinator broke
  kLeaseExpired,  // no heartbeat for Options::lease: suspended, its machine or its link is down
  kHung,          // its heartbeats go on but its work makes no progress; its launcher kills it
  kQuarantined,   // repeatedly could not communicate with another member
  kFaulty,        // an audit found its state or its gradients wrong; its launcher kills it
};
std::string_view removal_cause_name(RemovalCause cause);

// A member computed wrongly or its memory was damaged, and an audit noticed (train/audit/audit.h).
// What the job computed after `step`, in rosters up to `number`, may be wrong and is invalid:
// states in memory, checkpoints and metrics.
struct Rollback {
  RosterNumber number = 0;  // of the roster whose members noticed; 0: there was none
  uint64_t step = 0;
  bool operator==(const Rollback&) const = default;
  // If members could not come to one verdict, the one that goes back furthest holds.
  std::strong_ordering operator<=>(const Rollback& other) const {
    if (number != other.number) return number <=> other.number;
    return other.step <=> step;
  }
};

// What each member tells the others right after the group of a roster is formed (allgather).
struct StateReport {
  // The last rollback it knows of, which leaves its state and its checkpoints valid.
  Rollback rollback;
  bool has_state = false;  // a joiner has none; neither has one whose transfer was cut short
  Position position;       // with has_state
  // It has the full sums of the step after `position`: it had entered the commit.
  bool holds_sums = false;
  // It has the commit message that led from `message_of` to `position`. Not so after a transfer.
  bool has_message = false;
  Position message_of;
  // The newest step it could load from a checkpoint of this job; 0: the initial state. Looked up
  // for each report, as others write checkpoints too, and only one that is whole: if it is newer
  // than every state, all will go on from it.
  uint64_t restorable = 0;
  bool operator==(const StateReport&) const = default;

  static constexpr size_t kBytes = 64;
  std::string encode() const;  // kBytes of it: an allgather wants equal sizes
  static Result<StateReport> decode(std::string_view bytes);
};

// How long a worker takes at most to connect to all members of a roster once it has their
// addresses; then it reports which of them it could not reach. One place for both sides: the worker
// gives up after it (train/membership/membership.h), and the coordinator allows for it before it
// takes a worker for one that hangs (hang_rules.cc).
inline constexpr Duration kConnectTimeout = std::chrono::seconds(10);

// What the workers of one role do in a job.
struct RoleOptions {
  std::string name{kTrainer};
  std::vector<std::string> groups{std::string(kTrainers)};
  bool computes_lanes = true;
};

// How the coordinator of one job decides. Defaults are those of the job file.
struct Options {
  std::string job;
  // A worker with another role is refused. Min, max and expected count those that compute lanes.
  std::vector<RoleOptions> roles = std::vector<RoleOptions>(1);
  int32_t lanes = 8;
  int32_t min_workers = 1;
  int32_t max_workers = 0;  // 0: as many as there are lanes, and more in sites

  // How many trainers can share what is dealt out as one lane, if they are of one site. 1: sites do
  // not matter.
  int32_t site_workers = 1;

  // How many were started. The first roster waits for that many, but not longer than `gather`.
  int32_t expected = 0;
  Duration gather = std::chrono::seconds(5);

  Duration lease = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(400);
  // A member whose own work makes no progress for this long while another member waits for it is
  // removed (hang_rules.h). 0: never.
  Duration hang_timeout = std::chrono::seconds(60);
  // While a roster's group is still being formed, further losses are gathered for this long before
  // the next roster: a rack of 40 workers that loses power costs two or three rosters, not 40.
  Duration loss_batch = std::chrono::milliseconds(30);

  // After a member says that its group failed, and nobody is known to have died: how long to wait
  // for such news before the same members try again under another number.
  Duration confirm = std::chrono::milliseconds(50);
  int32_t tries = 3;  // before one of two that cannot communicate is removed and quarantined
  Duration quarantine = std::chrono::seconds(10);  // how long it then waits; doubles each time
  Duration longest_quarantine = std::chrono::minutes(5);

  Duration rebalance_every = std::chrono::seconds(5);
  double rebalance_gain = 0.05;  // lanes move only if a step gets faster by this part

  JobFingerprint fingerprint;  // empty: the first worker's
  bool tolerant = false;       // accept other numerics; the promise of equal bits is off

  // Higher than that of any coordinator that this job had before: milliseconds since 1970 (44 bits
  // last until 2527), or the revision of the leader's key where etcd picks it.
  uint64_t term = 1;
  // Random, for the case that the clock was set back: see Registrar::heard_of.
  uint64_t nonce = 0;
  // No coordinator was there before this one, so no worker can be holding a roster.
  bool fresh = true;
  // Not fresh: how long to listen to workers that show themselves before deciding anything.
  Duration grace = std::chrono::seconds(2);

  // How long the coordinator's loop waits at most: what it is later than that is no worker's fault
  // (loop_clock.h).
  Duration longest_wait() const {
    return std::min<Duration>(lease / 8, std::chrono::milliseconds(250));
  }
  // How many trainers, or sites, can be members: one without a lane would only hold the state.
  int32_t most_workers() const { return max_workers > 0 ? std::min(max_workers, lanes) : lanes; }

  // The groups of a worker with this role that joins from that site.
  std::vector<std::string> groups_of(const RoleOptions& role, const std::string& site) const;

  // Null: the job has no such role.
  const RoleOptions* role(std::string_view name) const;
  bool computes_lanes(std::string_view role_name) const;
  // How many of these compute lanes.
  int32_t trainers(const std::vector<Member>& members) const;
  // One sentence if some of this cannot work together.
  Status validate() const;
};

// Whether there is room for further trainers besides these members.
class Room {
 public:
  Room(const Options& options, const std::vector<Member>& members);
  bool has_place(const Member& trainer) const;
  void take(const Member& trainer);

 private:
  const Options& options_;
  int32_t trainers_ = 0;
  int32_t parties_ = 0;                                // sites, and trainers that have none
  std::map<std::string, int32_t, std::less<>> sites_;  // how many each has
};

// How a job ended.
struct Ended {
  bool finished = false;  // all its steps are done; false: it was stopped before that
  std::string reason;     // one sentence, for people
  bool operator==(const Ended&) const = default;
};

// Something that happened, for `muster status` and the log.
struct Event {
  Moment when;
  RosterNumber roster = 0;  // the newest one at that time
  std::string text;
};

}  // namespace muster::roster
