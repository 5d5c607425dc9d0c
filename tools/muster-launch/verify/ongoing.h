// Faults whose cause lasts for a while: suspended workers, a paused or missing coordinator, workers
// that hang, cut networks. Their causes are taken away when it is time.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/muster-launch/verify/fault_target.h"
#include "tools/muster-launch/verify/hung_process.h"
#include "tools/muster-launch/verify/plan.h"
#include "tools/muster-launch/verify/training.h"

namespace muster::cli {

class Ongoing {
 public:
  // Both must outlive it.
  Ongoing(const DisturbPlan& plan, Training& training) : plan_(plan), training_(training) {}
  // Takes all causes away: a suspended worker would not hear that it is to leave.
  ~Ongoing();
  Ongoing(const Ongoing&) = delete;
  Ongoing& operator=(const Ongoing&) = delete;

  // `fault`: its number, by which finished() names it. False: it hit nobody.
  bool stop(size_t fault, const Target& victim, double until);
  bool hang(size_t fault, const Target& victim);
  // Lasts until the job has made progress from `step`, and `heal` seconds more.
  bool cut(size_t fault, const Target& a, const Target& b, uint64_t step, double heal, double now);
  // Last until the worker was removed for it.
  bool flip(size_t fault, const Target& victim, uint32_t draw);
  bool lie(size_t fault, const Target& victim);
  bool pause_coordinator(size_t fault, double until);
  bool restart_coordinator(size_t fault, double absence);

  // One whose cause was taken away, or has ended.
  struct Finished {
    size_t fault;
    bool operator==(const Finished&) const = default;
  };
  // `step`: the newest commit.
  std::vector<Finished> finished(double now, uint64_t step);
  // Whether a worker whose state or results are wrong has not been found yet: until then the others
  // must not change, for they are to tell which one it is.
  bool has_corrupted() const { return !corrupted_.empty(); }
  // Tells it who is a member: a worker that hangs is killed once it was removed, if no launcher
  // does.
  void see(const std::vector<Target>& members);

  bool involves(const Target& target) const;
  bool coordinator_is_away() const;
  bool nothing() const;

 private:
  struct Stopped {
    size_t fault;
    pid_t process;
    double until;
  };
  struct Hung {
    size_t fault;
    Target target;
    HungProcess process;
  };
  // Its state or its results are wrong.
  struct Corrupted {
    size_t fault;
    Target target;
    bool removed = false;
  };
  struct Cut {
    size_t fault;
    std::string a;
    std::string b;
    uint64_t step;
    double began;
    double heal;
    std::optional<double> until;
  };

  const DisturbPlan& plan_;
  Training& training_;
  std::vector<Stopped> stopped_;
  std::optional<Stopped> paused_;    // the coordinator
  std::optional<size_t> restarted_;  // the fault that killed the coordinator
  std::vector<Hung> hung_;
  std::vector<Corrupted> corrupted_;
  std::vector<Cut> cuts_;
};

}  // namespace muster::cli
