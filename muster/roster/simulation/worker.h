// A virtual worker: a slot whose process starts, trains, and can be killed, stopped, hung or told
// to leave. It makes its decisions with follow.h and agree.h, as the real one does.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/roster/agree.h"
#include "muster/roster/follow.h"
#include "muster/roster/simulation/group.h"
#include "muster/roster/simulation/office.h"
#include "muster/roster/simulation/witness.h"
#include "muster/roster/simulation/world.h"

namespace muster::roster::simulation {

// What outlives every process: the checkpoints on disk, by step, for all to see. Rank 0 of a group
// writes them. One that was agreed on can be loaded even if somebody, in the roster or not any
// more, has written a newer one meanwhile.
struct Disk {
  std::map<uint64_t, uint64_t> states = {{0, kInitialState}};
  uint64_t newest() const { return states.rbegin()->first; }
};

// How long things take, and how long one waits for them.
struct Timing {
  Duration heartbeat = std::chrono::milliseconds(160);
  Duration keepalive = std::chrono::milliseconds(600);  // until a dead connection is given up
  Duration form = std::chrono::milliseconds(700);       // to form a group
  Duration operation = std::chrono::milliseconds(2500);
  Duration transfer = std::chrono::milliseconds(30);
  Duration leave =
      std::chrono::seconds(2);    // a worker that is told to go waits this long for its turn
  uint64_t checkpoint_every = 4;  // steps
  Duration writing = std::chrono::milliseconds(20);  // of a checkpoint, behind the steps, at most
};

// Where members of a roster with the same addresses meet.
using Meetings = std::map<uint64_t, std::shared_ptr<Group>>;

struct Surroundings {
  World& world;
  Office& office;
  Witness& witness;
  Disk& disk;
  Meetings& meetings;
  const Timing& timing;
  int32_t lanes;
};

class Worker final : public Caller, public GroupMember {
 public:
  Worker(Surroundings around, int slot, Duration lane_time, int32_t threads);

  // What happens to it.
  void start();
  enum class Death : uint8_t { kProcess, kMachine };
  void kill(Death death, bool launcher_sees);
  void stop(Moment until);  // SIGSTOP, later SIGCONT
  void hang();              // its own work stands still; its heartbeats go on
  void leave();             // SIGTERM
  void set_lane_time(Duration time) { lane_time_ = time; }

  bool running() const { return running_; }
  bool hung() const { return hung_; }
  bool leaving() const { return leaving_; }
  bool refused() const { return refused_; }
  const std::string& id() const { return key_.id; }
  const WorkerKey& key() const { return key_; }
  uint64_t step() const { return position_.step; }

  void on_message(SessionId session, const ToWorker& message) override;
  void on_break(SessionId session) override;
  void on_formed() override;
  void on_complete(size_t operation) override;
  void on_failed(int suspect, const std::string& why) override;

 private:
  // Runs `what` later, if this process still lives then; if it is stopped, when it goes on.
  void later(Duration delay, std::function<void()> what);
  // The same for its own work, which a hang holds up for ever.
  void work(Duration delay, std::function<void()> what);
  // True if it is stopped: then `again` is called when it goes on.
  bool deferred(std::function<void()> again);

  void connect();
  void read_inbox();
  void take(const ToWorker& message);
  void ask_in_again();
  void beat();
  void beats();
  void take_roster(const RosterDiff& diff);
  void take_addresses(const Addresses& addresses);
  void advance();
  void begin_forming();
  void stop_forming();
  void leave_group(Group::Going going);
  void report_broken(RosterNumber number);
  void enter(const Offering& offering, Duration takes = {});

  // The phases of a group, each entered when the operation of the one before is complete.
  enum class Phase : uint8_t { kAgreeing, kRolling, kTransferring, kReducing, kCommitting };
  void agreed();
  void roll();
  void transfer();
  void begin_step();
  void reduce();
  void reduced(uint64_t sum);
  void committed(const CommitMessage& message);
  void apply(const CommitMessage& message);
  void save();
  void claim(uint64_t state);
  const std::vector<int32_t>& my_lanes() const;

  Surroundings around_;
  World& world_;
  int slot_;
  Duration lane_time_;
  int32_t threads_;

  // The process.
  bool running_ = false;
  uint64_t life_ = 0;  // counts starts: events of an earlier process are void
  Moment stopped_until_;
  bool hung_ = false;
  bool refused_ = false;

  // Towards the coordinator.
  WorkerKey key_;
  SessionId session_ = 0;
  std::deque<std::pair<SessionId, ToWorker>> inbox_;  // came while it was stopped
  bool welcome_ = false;
  Roster streamed_;  // the base of the next difference in this session
  Roster newest_;
  RosterNumber highest_ = 0;
  uint64_t beats_ = 0;
  Activity activity_ = Activity::kIdle;
  RosterNumber broken_ = 0;
  RosterNumber past_ = 0;  // groups up to this number are behind it
  std::string suspect_;
  bool leaving_ = false;
  uint64_t progress_ = 0;

  // Its group.
  RosterNumber forming_ = 0;
  std::string blob_;
  std::shared_ptr<Group> group_;
  bool formed_ = false;
  int rank_ = -1;
  Phase phase_ = Phase::kAgreeing;
  size_t operation_ = 0;
  Agreement agreement_;
  uint64_t saved_ = 0;              // the newest checkpoint there was when it reported
  std::vector<int32_t> old_lanes_;  // for Plant::kOldLanes

  // Its state.
  bool has_state_ = false;
  Position position_;
  uint64_t state_ = 0;
  bool holds_sums_ = false;
  uint64_t sums_ = 0;
  bool has_message_ = false;
  CommitMessage message_;
};

}  // namespace muster::roster::simulation
