#include "muster/roster/simulation/world.h"

#include <algorithm>
#include <ostream>

namespace muster::roster::simulation {

using namespace std::chrono_literals;

const std::vector<PlantName>& plants() {
  static const std::vector<PlantName> all = {
      {Plant::kNothing, "none", "nothing is wrong"},
      {Plant::kDropCommitRule, "drop-commit-rule", "a step is applied without hearing its commit"},
      {Plant::kReuseNumbers, "reuse-numbers", "a new coordinator counts rosters from 1"},
      {Plant::kCountLate, "count-late", "a removed worker continues under its old key"},
      {Plant::kRollWithoutSums, "roll-without-sums", "sums are claimed before they are complete"},
      {Plant::kOldLanes, "old-lanes", "lanes of the roster before are computed"},
      {Plant::kSkipAgreement, "skip-agreement", "everybody goes on from where it is"},
      {Plant::kHalfState, "half-state", "a state counts when its transfer begins"},
      {Plant::kSwitchAlone, "switch-alone", "a planned roster is followed without the commit"},
      {Plant::kNeverAbort, "never-abort", "a group that lost a member is not left"},
      {Plant::kForgetCheckpoints, "forget-checkpoints",
       "one that has a state does not look for a newer checkpoint"},
      {Plant::kSilentFailure, "silent-failure", "a failed group is not reported"},
      {Plant::kNeverWaiting, "never-waiting", "workers do not say that they wait for their peers"},
      {Plant::kRestartClock, "restart-clock", "each retry restarts the clock of a hung member"},
      {Plant::kNoSuspect, "no-suspect", "a failed group names no suspect"},
      {Plant::kSilentWork, "silent-work", "evaluations and restores report no progress"},
      {Plant::kBlameSuspended, "blame-suspended",
       "a suspended coordinator takes its own absence for that of its workers"},
      {Plant::kSilentLeave, "silent-leave", "a worker that left does not say so"},
      {Plant::kWrapNumbers, "wrap-numbers", "a roster number near 2^64 is believed"},
      {Plant::kBlameClosed, "blame-closed", "a peer that only closed is named as a suspect"},
  };
  return all;
}

World::World(uint64_t seed, Plant plant, std::ostream* trace)
    : plant_(plant), random_(seed, Purpose::kUser, 0x526f73746572), trace_(trace) {}

bool World::step() {
  if (queue_.empty()) return false;
  // The queue gives only const access to its top; the event leaves it in the next line.
  Event event = std::move(const_cast<Event&>(queue_.top()));
  queue_.pop();
  now_ = event.when;
  ++done_;
  event.what();
  return true;
}

void World::cut(int a, int b, Moment until) {
  Moment& end = cuts_[std::minmax(a, b)];
  end = std::max(end, until);
}

void World::slow(int a, Duration extra, Moment until) { slow_[a] = {extra, until}; }

void World::heal_all() {
  cuts_.clear();
  slow_.clear();
}

Moment World::cut_until(int a, int b) const {
  if (cuts_.empty()) return {};
  const auto found = cuts_.find(std::minmax(a, b));
  return found == cuts_.end() ? Moment{} : found->second;
}

Duration World::latency(int a, int b) {
  Duration result = between(100us, 1ms);
  for (const int end : {a, b}) {
    const auto found = slow_.find(end);
    if (found != slow_.end() && found->second.second > now_)
      result += between(0ns, found->second.first);
  }
  return result;
}

void World::write_trace(const std::string& text) {
  *trace_ << fmt::format("{:10.3f} ms  {}\n", seconds(now_.time_since_epoch() - 1000s) * 1e3, text);
}

}  // namespace muster::roster::simulation
