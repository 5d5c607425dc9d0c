// One worker's place in a job of several: its line to the coordinator, and the group of the present
// roster.
//
// A worker's life:
//
//   enter()       waits for a roster that has this worker, forms its group, comes to one position
//                 with the others (recovery.h), takes its lanes
//   run a step, evaluate, ... with the session, together with the others
//   committed()   after each step; true: the roster changes by plan, enter() again
//   lost()        a collective call failed; true: because of the group, enter() again
//
// until the job is done (finished()) or this worker was told to go (leave(), then enter() says so).
// A worker that was put out while it was asleep or cut off notices it here, asks in again and takes
// over the state of the others.
//
// Threads: the client's (roster/client.h), which aborts the group as soon as a roster says that it
// is void; that is what wakes a worker that waits for a peer that hangs. All calls belong to one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/log.h"
#include "muster/base/result.h"
#include "muster/comm/gloo_group.h"
#include "muster/roster/client.h"
#include "muster/train/recovery.h"
#include "muster/train/session.h"

namespace muster::train {

struct CrewOptions {
  std::vector<std::string> coordinators;  // addresses, tried in turn
  std::string job;
  std::string id;                  // of this worker's slot
  std::string host = "127.0.0.1";  // where peers reach this machine
  std::string fingerprint;
  int64_t process = 0;
  // Of an operation of the group: only a last resort, the coordinator notices those that hang.
  Duration timeout = std::chrono::minutes(10);
  Duration forming = std::chrono::seconds(10);
  // How long one that has no group looks for a coordinator that is gone.
  Duration orphaned = std::chrono::seconds(60);
  bool shared_memory = true;
};

class Crew {
 public:
  // The job's data and model must be ready: from here on others may wait for this worker.
  static Result<std::unique_ptr<Crew>> join(Session& session, CrewOptions options,
                                            const Clock& clock, Log& log);
  ~Crew();

  // Where the state comes from if nobody has it.
  struct Sources {
    // The newest step that can be restored; 0: the beginning. `sure`: it has been looked at, so
    // that restoring it will not fail because it is damaged.
    std::function<Result<uint64_t>(bool sure)> restorable;
    Recovery::Restore restore;
    std::function<bool()> give_up;  // asked now and then while there is nothing to do but wait
  };
  struct Entry {
    enum class How : uint8_t {
      kIn,        // in a group, at one position with the others
      kReleased,  // it had asked to leave, and may go
      kFinished,  // the job has ended without it
      kGaveUp,
    };
    How how = How::kIn;
    bool rolled = false;       // it caught up with the others' last commit
    bool other_state = false;  // received or restored: not the one it brought along
    // It had to ask in again: others may have had its place meanwhile.
    bool was_out = false;
  };
  // An error only if this worker cannot go on: it was refused, or its state cannot be restored.
  Result<Entry> enter(const Sources& sources);

  int rank() const { return roster_->rank_of(key_); }
  int size() const { return static_cast<int>(roster_->members.size()); }
  const roster::Roster& roster() const { return *roster_; }
  bool connected() const { return client_->connected(); }
  bool has_state() const { return recovery_.has_state(); }

  // Collective over the group: the maximum of each byte, and waiting for all.
  Status combine(std::span<uint8_t> bytes);
  Status barrier();

  // For the commit message: 1 if this worker knows of a newer roster.
  uint8_t roster_byte() const;
  // After a commit: `agreed` is the byte as all have it.
  bool committed(uint8_t agreed);
  bool lost(const Error& error);

  void leave();
  void finished();
  // From any thread: the group fails, and so does the attempt to form one.
  void abort(const std::string& why);
  // From any thread: this worker's own work gets on.
  void progress() { client_->progress(); }

 private:
  class Meeting;
  Crew(Session& session, CrewOptions options, Log& log);
  Status form(const roster::RosterPtr& newest);
  void drop_group(roster::Activity activity);
  void report_broken(const std::string& trouble);
  // In the client's thread.
  void watch(const roster::RosterPtr& newest);

  Session& session_;
  const CrewOptions options_;
  Log& log_;
  Recovery recovery_;
  roster::WorkerKey key_;
  roster::RosterPtr roster_ = std::make_shared<const roster::Roster>();  // of the group
  roster::RosterNumber past_ = 0;  // the last roster whose group was left or could not be formed
  bool leaving_ = false;
  std::shared_ptr<comm::GlooDevice> device_;

  std::mutex mutex_;
  // Guarded by mutex_, because the client's thread aborts them.
  std::shared_ptr<comm::Group> group_;
  roster::RosterPtr forming_;  // the roster whose group is being made or used
  std::stop_source stop_forming_;

  std::unique_ptr<roster::Client> client_;  // last: its thread calls watch()
};

}  // namespace muster::train
