// The worker's side of the membership protocol, as a pure state machine: what comes from the
// coordinator, what happens to the worker's group, the worker's own progress and the time go in;
// messages and orders come out. There are no threads, clocks or connections here. Three drivers use
// the same Follower: Client and Membership in the product (gRPC, real groups), the simulation
// (virtual time), and the tests (by hand).
//
// Two parties call it, and it matters which one:
//
// - The connection (connected, disconnected, received, tick) says what the coordinator wants. It
//   keeps working when the worker's own thread hangs: heartbeats go on.
// - The worker's thread (next, offer, formed, failed, committed) moves the worker through its
//   groups. Only next() begins a group or rejoins after a removal, so a worker whose own thread
//   hangs never becomes a member again by its heartbeats alone.
//
// The life of a group, as the worker's thread sees it:
//
//   next() -> kForm(roster)    connect to the members of that roster:
//     offer(group, blob)         for each of its groups: own addresses; AddressesReady brings those
//                                of all members of the group
//     formed()                   connected in all of them; reconcile the state, then train
//     committed() after each commit; true: everybody leaves the group after this step
//   failed()                   forming or any collective failed: reported to the coordinator
//   next()                     what now
//
// While a group is being formed or used, the Follower may order it to be aborted (Abort): a newer
// roster says that a member is lost, this worker was removed, or the job was stopped. The worker's
// thread then sees its collective fail, and calls failed() like after any other failure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/base/clock.h"
#include "muster/roster/follow.h"
#include "muster/roster/messages.h"
#include "muster/roster/types.h"

namespace muster::roster {

struct FollowerOptions {
  // Who this worker is. The Follower sets key.incarnation, held and highest.
  JoinRequest join;
  Duration heartbeat = std::chrono::milliseconds(400);  // until the coordinator says otherwise
  // Between two attempts to connect; doubles from the first to the second, with jitter.
  Duration least_backoff = std::chrono::milliseconds(10);
  Duration longest_backoff = std::chrono::milliseconds(500);
  // A commit said that a newer roster exists, but it has not arrived: after this long the worker
  // reports its group as broken, and gets another roster.
  Duration roster_timeout = std::chrono::seconds(10);
  // How long a worker without a group looks for a coordinator before it exits.
  Duration orphaned = std::chrono::seconds(60);
  // A worker that was removed, and whose own thread neither comes back nor makes progress for this
  // long, exits, so that whatever started it can start it again. If the reason for the removal was
  // that it hangs: after stuck_exit; its launcher, if it has one, kills it before that. 0: never.
  Duration hang_timeout = std::chrono::seconds(60);
  Duration stuck_exit = std::chrono::seconds(5);
  uint64_t seed = 0;  // of incarnations and jitter: must differ between processes
};

// ---- Orders to the driver, to be carried out at once and in order.

struct Connect {};  // open a connection to the coordinator; connected() or disconnected() follows
struct Disconnect {};  // close the connection; no disconnected() is expected
struct Send {
  FromWorker message;
};
// Abort the group of this roster, or the attempt to form it. From any thread; must not wait.
struct Abort {
  RosterNumber roster = 0;
  std::string reason;
};
// The addresses of all members of one group of the roster that is being formed, by rank in it.
struct AddressesReady {
  RosterNumber roster = 0;
  std::string group;
  Blobs blobs;
};
// End this process: the coordinator has removed it, and its own thread hangs.
struct ExitStuck {
  std::string reason;
};
using FollowerAction = std::variant<Connect, Disconnect, Send, Abort, AddressesReady, ExitStuck>;

// ---- What the worker's thread is to do.

struct Instruction {
  enum class Kind : uint8_t {
    kWait,      // nothing yet; ask again when something has changed
    kForm,      // form the group of `roster`
    kRejoined,  // was removed (`reason`) and is joining again: it may hold an outdated state
    kReleased,  // it asked to leave, and may exit
    kFinished,  // the job is done and its result saved
    kStopped,   // the job was ended before it was done
    kRefused,   // the coordinator does not accept this worker
    kOrphaned,  // there has been no coordinator for too long
  };
  Kind kind = Kind::kWait;
  RosterPtr roster;  // kForm
  // kRejoined, kFinished, kStopped, kRefused; kOrphaned: why it was refused last, if it was.
  std::string reason;
};

class Follower {
 public:
  Follower(FollowerOptions options, Moment now);

  // ---- The connection.

  void connected(Moment now);
  // The connection broke, or could not be made.
  void disconnected(Moment now);
  void received(Moment now, const ToWorker& message);
  // To be called when wake() has come; earlier calls do no harm.
  void tick(Moment now);
  // When tick() is due; nothing: not before something happens.
  std::optional<Moment> wake() const;
  std::vector<FollowerAction> take_actions() { return std::exchange(actions_, {}); }

  // ---- The worker's thread.

  Instruction next(Moment now);
  // Gives this worker's addresses for one group of the roster it was told to form.
  void offer(Moment now, RosterNumber roster, const std::string& group, std::string blob);
  void formed(Moment now, RosterNumber roster);
  // The group of `roster` failed, or could not be formed. `suspect`: the id of the peer that this
  // worker could not connect to or that was silent; empty if there is none. `faulty`: the id of the
  // member whose memory or computation is wrong, if the group was left for that.
  void failed(Moment now, RosterNumber roster, const std::string& suspect,
              const std::string& trouble, const std::string& faulty = "");
  // What this worker says in the commit message: 1 if it knows of a newer roster.
  uint8_t commit_byte() const;
  // A step is committed. `agreed`: the maximum of all members' commit_byte(). True: this worker has
  // left its group; ask next().
  bool committed(Moment now, uint64_t step, double lane_seconds, uint8_t agreed);
  // What heartbeats say of the worker's own work.
  void set_activity(Moment now, Activity activity);
  void progress(Moment now);
  // It wants to leave at a step boundary.
  void leave(Moment now);
  // The job is done and its result saved: all others are told.
  void finished(Moment now);

  // ---- Questions.

  const WorkerKey& key() const { return key_; }
  const RosterPtr& newest() const { return newest_; }
  bool welcome() const { return welcome_; }
  bool leaving() const { return beat_.leaving; }
  const Heartbeat& heartbeat() const { return beat_; }
  const std::string& reason() const { return reason_; }

 private:
  enum class Standing : uint8_t { kUp, kRemoved, kRefused, kEnded };
  enum class Phase : uint8_t { kNoGroup, kForming, kInGroup };

  uint64_t draw();
  void act(FollowerAction action) { actions_.push_back(std::move(action)); }
  void send_join();
  void send_heartbeat(Moment now);
  void send_offers();
  void take(Moment now, const Welcome& message);
  void take(Moment now, const Refused& message);
  void take(Moment now, const Removed& message);
  void take(Moment now, const RosterDiff& message);
  void take(Moment now, const Addresses& message);
  void take(Moment now, const Released& message);
  void take(Moment now, const Ended& message);
  void removed(Moment now, std::string reason, RemovalCause cause);
  void hang_up();
  void reconnect_later(Moment now);
  void order_abort(const std::string& reason);
  std::optional<Moment> orphaned_at() const;
  void close_group(Moment now);
  Instruction rejoin(Moment now, const std::string& why);
  Instruction depart(Moment now);
  void report_broken(Moment now, RosterNumber roster, const std::string& suspect,
                     const std::string& trouble, const std::string& faulty = "");
  Instruction begin_forming(Moment now);

  const FollowerOptions options_;
  std::vector<FollowerAction> actions_;
  uint64_t draws_ = 0;

  // The connection.
  bool connecting_ = false;  // Connect was ordered and not answered
  bool connected_ = false;
  bool welcome_ = false;
  std::optional<Moment> connect_at_;
  Duration backoff_{0};
  Moment alone_since_;  // when it last had a coordinator or a group
  Duration interval_{0};
  Moment next_beat_;

  // What the coordinator has said.
  WorkerKey key_;
  Standing standing_ = Standing::kUp;
  std::string reason_;
  std::optional<Moment> exit_at_;  // removed: its own thread must have come back by then
  Duration exit_after_{0};
  uint64_t exit_progress_ = 0;  // how far its work was when exit_at_ was set
  bool released_ = false;
  bool job_finished_ = false;  // with kEnded
  // The base of the next difference in this connection.
  RosterPtr streamed_ = std::make_shared<const Roster>();
  RosterPtr newest_ = std::make_shared<const Roster>();
  RosterNumber highest_ = 0;

  // The worker's group.
  Phase phase_ = Phase::kNoGroup;
  RosterPtr group_ = std::make_shared<const Roster>();  // being formed, or formed
  bool abort_ordered_ = false;
  std::string abort_reason_;
  RosterNumber past_ = 0;  // the newest roster whose group was left or could not be formed
  std::map<std::string, std::string> offered_;  // by group: offered and not answered
  std::optional<Moment> roster_due_;  // a newer roster than past_ should have arrived by then

  Heartbeat beat_;
  Moment progressed_;  // when beat_.progress last went up
};

}  // namespace muster::roster
