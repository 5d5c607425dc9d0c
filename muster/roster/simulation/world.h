// What everything in a simulated run shares: virtual time, the queue of what happens next, random
// numbers from one seed, the network, and the trace. One thread; a run is a pure function of its
// seed.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "muster/base/clock.h"
#include "muster/base/random.h"

namespace muster::roster::simulation {

inline constexpr int kCoordinator = -1;  // its place in the network; workers have their slots

// Mistakes that can be built in on purpose, to see that they are found.
enum class Plant : uint8_t {
  kNothing,
  kDropCommitRule,     // applies a step when its sums are there, without hearing the commit
  kReuseNumbers,       // a coordinator that is started again counts rosters from 1
  kCountLate,          // a removed worker continues under its old key
  kRollWithoutSums,    // claims the sums of a step before they are complete
  kOldLanes,           // goes on with the lanes of the roster before
  kSkipAgreement,      // everybody goes on from where it is
  kHalfState,          // counts a state as received when the transfer begins
  kSwitchAlone,        // follows a planned roster at once, without asking in the commit
  kNeverAbort,         // stays in a group that lost a member
  kForgetCheckpoints,  // one that has a state does not look for a newer checkpoint
  kSilentFailure,      // does not tell the coordinator that its group failed
  // Defects that the product once had.
  kNeverWaiting,    // workers do not say that they wait for their peers
  kRestartClock,    // each retry restarts the clock by which a hung member is removed
  kNoSuspect,       // a failed attempt to form a group names no suspect
  kSilentWork,      // evaluations and restores report no progress
  kBlameSuspended,  // a coordinator that was suspended takes it for its workers' silence
  kSilentLeave,     // a worker that left does not say so
  kWrapNumbers,     // a roster number near 2^64 is believed
  kBlameClosed,     // a peer that only closed its connection is reported as a suspect
};
struct PlantName {
  Plant plant;
  const char* name;
  const char* meaning;
};
const std::vector<PlantName>& plants();

class World {
 public:
  World(uint64_t seed, Plant plant, std::ostream* trace);

  Moment now() const { return now_; }
  Plant plant() const { return plant_; }

  void at(Moment when, std::function<void()> what) {
    queue_.push({std::max(when, now_), count_++, std::move(what)});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  // Does the next thing. False: there is none.
  bool step();
  uint64_t events() const { return done_; }

  // Random numbers.
  uint64_t below(uint64_t n) { return random_.below(n); }
  bool chance(double p) { return static_cast<double>(random_.uniform()) < p; }
  Duration between(Duration least, Duration most) {
    const auto span = static_cast<uint64_t>((most - least).count());
    return least + Duration{static_cast<int64_t>(span == 0 ? 0 : random_.next_u64() % (span + 1))};
  }
  uint64_t draw() { return random_.next_u64(); }

  // The network. A cut link loses nothing: it delivers when it is whole again, or the connection is
  // given up before that.
  void cut(int a, int b, Moment until);
  void slow(int a, Duration extra, Moment until);
  void heal_all();
  Moment cut_until(int a, int b) const;
  bool is_cut(int a, int b) const { return cut_until(a, b) > now_; }
  // Pairs of ends, and until when they are cut.
  const std::map<std::pair<int, int>, Moment>& cuts() const { return cuts_; }
  // How long a small message takes now.
  Duration latency(int a, int b);

  bool tracing() const { return trace_ != nullptr; }
  template <typename... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) {
    if (trace_) write_trace(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Event {
    Moment when;
    uint64_t order;  // what was asked for first happens first
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(other.when, other.order) < std::pair(when, order);
    }
  };
  void write_trace(const std::string& text);

  Plant plant_;
  RandomStream random_;
  std::ostream* trace_;
  Moment now_{std::chrono::seconds(1000)};
  std::priority_queue<Event> queue_;
  uint64_t count_ = 0;
  uint64_t done_ = 0;
  std::map<std::pair<int, int>, Moment> cuts_;
  std::map<int, std::pair<Duration, Moment>> slow_;
};

}  // namespace muster::roster::simulation
