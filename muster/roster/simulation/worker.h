// A virtual worker: a slot whose process starts, trains, and can be killed, suspended, hung or told
// to leave. What it does is decided by the product's own Follower (follower.h) and agree(); this
// only plays the parts around it: gRPC, the process, the training loop.
//
// A worker has two threads here as in the product. The client's (`later`) carries messages and
// heartbeats; a suspended process holds it up. The worker's own (`work`) forms groups and trains; a
// hang holds it up for ever while the client's goes on.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "muster/roster/agree.h"
#include "muster/roster/follower.h"
#include "muster/roster/simulation/coordinator_host.h"
#include "muster/roster/simulation/group.h"
#include "muster/roster/simulation/witness.h"
#include "muster/roster/simulation/world.h"

namespace muster::roster::simulation {

// What outlives every process: the checkpoints on disk, by step, for all to see. Rank 0 of a group
// writes them. One that was agreed on can be loaded even if another worker has written a newer one
// meanwhile; but any of them may be deleted.
struct Disk {
  std::map<uint64_t, uint64_t> states = {{0, kInitialState}};
  Moment slow_until;  // reading and writing take long until then
  uint64_t newest() const { return states.rbegin()->first; }
};

// How long things take, and how long one waits for them: in the product's own proportions.
struct Timing {
  Duration heartbeat = std::chrono::milliseconds(400);
  Duration keepalive = std::chrono::seconds(10);  // until a silent connection is given up
  Duration form = std::chrono::seconds(4);        // to connect to all members
  Duration silence = std::chrono::seconds(3);     // until a peer that does not answer is suspected
  Duration transfer = std::chrono::milliseconds(300);
  uint64_t checkpoint_every = 4;                      // steps
  Duration writing = std::chrono::milliseconds(200);  // of a checkpoint, behind the steps, at most
  Duration slow_disk = std::chrono::seconds(90);      // reading one from a slow disk, at most
  bool evaluations = false;  // every 16 steps, one that takes longer than hang_timeout
};

// Where members of a roster with the same addresses meet.
using Meetings = std::map<uint64_t, std::shared_ptr<Group>>;

struct Surroundings {
  World& world;
  CoordinatorHost& coordinator;
  Witness& witness;
  Disk& disk;
  Meetings& meetings;
  const Timing& timing;
  int32_t lanes;
  // The worker's process has ended by itself; its launcher decides whether to start it again.
  std::function<void(int slot)> exited;
};

class Worker final : public Caller, public GroupMember {
 public:
  Worker(Surroundings around, int slot, Duration lane_time, int32_t threads);

  // What happens to it.
  void start();
  enum class Death : uint8_t { kProcess, kMachine };
  void kill(Death death, bool launcher_sees);
  void kill_in_commit();    // the same, in the middle of its next commit
  void stop(Moment until);  // SIGSTOP, later SIGCONT
  void hang();              // its own work stands still; its heartbeats go on
  void leave();             // SIGTERM
  void set_lane_time(Duration time) { lane_time_ = time; }

  bool running() const { return running_; }
  bool hung() const { return hung_; }
  bool leaving() const { return running_ && follower_->leaving(); }
  const std::string& id() const { return id_; }
  int64_t process() const { return static_cast<int64_t>(life_); }
  uint64_t step() const { return position_.step; }

  void on_message(SessionId session, const ToWorker& message) override;
  void on_break(SessionId session) override;
  void on_formed() override;
  void on_complete(size_t operation) override;
  void on_failed(int suspect, const std::string& why) override;
  bool answers() const override { return running_ && stopped_until_ <= world_.now(); }

 private:
  // Runs `what` later, if this process still lives then; if it is suspended, when it continues.
  void later(Duration delay, std::function<void()> what);
  // The same for its own thread, which a hang holds up for ever.
  void work(Duration delay, std::function<void()> what);
  // True if it is suspended: then `again` is called when it continues.
  bool deferred(std::function<void()> again);
  void exit(const char* why);

  // The client's thread.
  void carry_out();
  void carry_out(const Connect&);
  void carry_out(const Disconnect&);
  void carry_out(const Send& send);
  void carry_out(const Abort& abort);
  void carry_out(const AddressesReady& ready);
  void carry_out(const ExitStuck& stuck);
  void schedule_tick();
  void give_up_silent_connection();
  void read_inbox();

  // The worker's own thread.
  void ask_next();
  void advance();
  void begin_forming(const RosterPtr& roster);
  void arrive(const AddressesReady& ready);
  void give_up_group(int suspect, const std::string& why);
  void leave_group(Group::Going going);
  void enter(const Offering& offering, Duration takes = {});
  void report();

  // The phases of a group, each entered when the operation of the one before is complete.
  enum class Phase : uint8_t { kAgreeing, kRolling, kTransferring, kReducing, kCommitting };
  void agreed();
  void restore();
  void roll();
  void transfer();
  void begin_step();
  void reduce();
  void reduced(uint64_t sum);
  void committed(const VirtualCommit& message);
  void apply(const VirtualCommit& message);
  void save();
  void claim(uint64_t state);
  void set_activity(Activity activity);
  // Its own thread is busy for this long, and shows progress meanwhile.
  void toil(Duration takes, std::function<void()> then);
  const std::vector<int32_t>& my_lanes() const;

  Surroundings around_;
  World& world_;
  std::string id_;
  int slot_;
  Duration lane_time_;
  int32_t threads_;

  // The process.
  bool running_ = false;
  uint64_t life_ = 0;  // counts starts: events of an earlier process no longer count
  Moment stopped_until_;
  bool hung_ = false;
  bool dies_in_commit_ = false;

  // Towards the coordinator.
  std::optional<Follower> follower_;
  SessionId session_ = 0;
  std::deque<std::pair<SessionId, ToWorker>> inbox_;  // arrived while it was suspended
  std::optional<Moment> tick_at_;
  bool asking_ = false;  // advance() is on its way

  // Its group.
  RosterPtr forming_;  // it was told to form the group of this roster
  std::string blob_;
  std::shared_ptr<Group> group_;
  bool formed_ = false;
  int rank_ = -1;
  Phase phase_ = Phase::kAgreeing;
  size_t operation_ = 0;
  Agreement agreement_;
  uint64_t saved_ = 0;              // the newest checkpoint there was when it reported
  std::set<uint64_t> unreadable_;   // checkpoints that could not be loaded
  std::vector<int32_t> old_lanes_;  // for Plant::kOldLanes

  // Its state.
  bool has_state_ = false;
  Position position_;
  uint64_t state_ = 0;
  bool holds_sums_ = false;
  uint64_t sums_ = 0;
  bool has_message_ = false;
  VirtualCommit message_;
};

}  // namespace muster::roster::simulation
