// Sees everything in a simulated run and says when a promise is broken.
//
// The job it judges by is arithmetic that behaves like training: lane l gives step s, attempt a a
// number; a step's sum is that over all lanes; a state is a chain of the sums applied to it. A lane
// counted twice or not at all, a step applied twice, or with the sums of another attempt, gives
// another state for good. Now and then a lane overflows its scale in the first attempt, which only
// the commit can tell the others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/roster/types.h"

namespace muster::roster::simulation {

// What happened in a run: to see that the rare paths were taken.
struct Tally {
  uint64_t steps = 0;  // committed, each counted once
  uint64_t rosters = 0;
  uint64_t waiting_rosters = 0;
  uint64_t redone = 0;         // attempts that were given up
  uint64_t rolled = 0;         // workers that rolled forward
  uint64_t received = 0;       // workers that took over the state
  uint64_t restored = 0;       // from a checkpoint, or begun anew
  uint64_t outdated = 0;       // of these: had a state, older than the checkpoint
  uint64_t aborted = 0;        // groups left because a roster said so
  uint64_t failed = 0;         // groups that failed under a worker
  uint64_t switched = 0;       // groups left at a step boundary
  uint64_t retries = 0;        // rosters that tried again without a death
  uint64_t quarantined = 0;    // workers removed because they could not communicate with another
  uint64_t hung = 0;           // workers removed because they hung
  uint64_t lapsed = 0;         // leases
  uint64_t rejoined = 0;       // workers that were told that they were removed, and came back
  uint64_t left = 0;           // workers that left as they had asked to
  uint64_t removed = 0;        // workers removed for any other reason
  uint64_t adopted = 0;        // rosters taken over from a coordinator before
  uint64_t lane_moves = 0;     // rosters that moved lanes for speed
  uint64_t overflows = 0;      // commits that said: once more
  uint64_t split = 0;          // commits seen by some and not by others when the group broke
  uint64_t standstills = 0;    // rosters issued because nobody made progress
  uint64_t suspensions = 0;    // of the coordinator, noticed by it
  uint64_t evaluations = 0;    // by one worker, longer than hang_timeout or waited for that long
  uint64_t slow_restores = 0;  // of a checkpoint from a slow disk
  uint64_t vanished = 0;       // checkpoints that were deleted before they could be restored
  uint64_t faults = 0;
  Tally& operator+=(const Tally& other);
  std::string text() const;
};

uint64_t contribution(const Position& position, int32_t lane);
bool overflows(const Position& position, int32_t lane);
uint64_t applied(uint64_t state, uint64_t sum);
inline constexpr uint64_t kInitialState = 0x6d7573746572;

class Witness {
 public:
  Witness(int32_t lanes, uint64_t samples, uint64_t batch);

  // A coordinator (`term` tells one from the other) issued a roster.
  void issued(uint64_t term, const Roster& roster);
  // A worker was handed a roster, by whatever coordinator.
  void handed(RosterNumber number, uint64_t checksum);
  // A reduction of a step is complete: how often each lane is in it.
  void reduced(const Position& position, const std::vector<uint8_t>& lanes);
  // A worker is at a position with this state, by an update, a transfer or a checkpoint.
  void has(const std::string& who, const Position& position, uint64_t state);
  // The run is over: were all samples of the whole passes used once?
  void check_samples();
  void violated(std::string what);
  // A worker reported a peer that it could not connect to, or that was silent.
  void suspected(const std::string& id, const std::string& suspect) {
    suspects_.emplace(id, suspect);
  }
  const std::set<std::pair<std::string, std::string>>& suspects() const { return suspects_; }

  uint64_t newest_step() const { return newest_step_; }
  const std::optional<std::string>& violation() const { return violation_; }
  // The state after `step` steps, as an undisturbed run has it.
  uint64_t reference(uint64_t step);
  Tally tally;

 private:
  int32_t lanes_;
  uint64_t samples_;
  uint64_t batch_;
  std::map<RosterNumber, uint64_t> numbers_;  // checksum of the roster of each number
  uint64_t term_ = 0;
  Roster last_;  // issued by the coordinator of term_
  std::set<std::pair<std::string, std::string>> suspects_;
  std::set<WorkerKey> out_;  // keys this coordinator has removed
  std::vector<uint64_t> reference_{kInitialState};
  std::map<uint64_t, uint64_t> committed_;             // step: state after it, as first seen
  std::map<uint64_t, std::vector<uint8_t>> lanes_of_;  // step: how often each lane is in it
  uint64_t newest_step_ = 0;
  std::optional<std::string> violation_;
};

}  // namespace muster::roster::simulation
