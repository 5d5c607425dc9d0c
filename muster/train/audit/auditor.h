// Carries out the comparisons of audit.h for one worker: what it hashes in which step, whether
// something differs, and with the other members, who is wrong.
//
// After a comparison in which something differs there is a finding, until the next step begins.
// Nothing of the step was applied. If the group fails before judge() has a verdict, the members
// that have the finding go back all the same (Membership::give_up_state): the faulty one may be the
// one that is gone.
//
// Used by the thread that runs the steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/config/job.h"
#include "muster/train/audit/audit.h"
#include "muster/train/membership/vitals.h"
#include "muster/train/state/arena.h"

namespace muster::train {

// That something differs, before it is known who is wrong.
struct AuditFinding {
  std::vector<LaneEvidence> lanes;  // empty: the states differ
  bool own = false;                 // this worker's own counters
  std::optional<Verdict> verdict;   // if there is one already
};

class Auditor {
 public:
  // `arena` must outlive it.
  Auditor(const config::Job& job, const Arena& arena);

  void set_vitals(const Vitals* vitals) { vitals_ = vitals; }
  // With whom, and which lanes are whose; the group must live until the next call.
  // `newcomers`: the ranks that have received or restored their state for this group. They are
  // checked in the first step, before anybody uses what they compute.
  void assign(std::vector<std::vector<int>> lanes, comm::Group* group, comm::OpOptions options,
              std::vector<int> newcomers = {});

  // ---- In each step, in this order.

  // Whether this worker's own counters have changed by themselves.
  void look_at_counters();
  // A step begins whose sums are exact, or are not. `last`: no other follows.
  void begin_step(bool exact, bool last);
  // The lane of this worker whose gradient is to be hashed, and the peer's lane to be computed
  // besides; -1: none.
  int own_lane() const { return own_lane_; }
  int other_lane() const { return other_lane_; }
  // Collective, if lanes are compared in this step: the hashes of these lanes. kNotCompared: it
  // could not be computed, because its data is damaged.
  static constexpr uint64_t kNotCompared = 0;
  Status compare_lanes(uint64_t own, uint64_t other);
  // For the commit message; nothing: no audit.
  std::optional<uint64_t> hash_state();
  // The commit said that the states differ.
  void states_differ();
  // Collective: the commit said that something is not finite, or workers have computed different
  // things. That may be because of a damaged state, so all of it is compared before the job is
  // ended, the step skipped or computed again for it.
  Status check_not_finite();

  // ---- When something differs.

  bool has_finding() const { return finding_.has_value(); }
  // An error if there is one.
  Status check() const;
  // Whether it concerns this worker alone, and the others know nothing of it.
  bool own_damage() const { return finding_ && finding_->own; }
  // Collective: whose fault it is. `recompute`: the hash of a lane of the present step.
  Result<Verdict> judge(const std::function<Result<uint64_t>(int lane)>& recompute);
  // Collective, at a step boundary, also before assign(): compares all of the state. `voters`:
  // whose state counts, by rank; empty: everybody's.
  // Nothing: all members have the same state.
  Result<std::optional<Verdict>> compare_states(comm::Group& group, const comm::OpOptions& options,
                                                const std::vector<bool>& voters = {});

  // ---- Since when all is known to be right; kept with checkpoints.

  int64_t trusted() const;
  // The state is now one of which that is known.
  void trust(int64_t step) { trusted_ = {step, step, step}; }
  // The state is now that of another worker: nothing is known of later steps any more.
  void took_over();

 private:
  // What each member tells the others about a finding.
  struct Claim {
    uint64_t hash = 0;
    int64_t step = 0;  // a damaged counter must not decide for the others
    Trusted trusted;
  };
  Claim tell(uint64_t hash) const { return {hash, arena_.counters().step, trusted_}; }
  struct LaneHashes {
    uint64_t own = 0;
    uint64_t other = 0;
  };
  template <typename T>
  Result<std::vector<T>> gather(comm::Group& group, const comm::OpOptions& options, const T& mine);
  Result<Verdict> judge_states();
  Result<Verdict> judge_lanes(const std::function<Result<uint64_t>(int lane)>& recompute);
  Verdict judge_receivers(const std::vector<Claim>& told, uint64_t right) const;
  int64_t newest_trusted(const std::vector<Claim>& told, const std::vector<int>& faulty,
                         bool lanes) const;
  std::string part_text() const;

  const int64_t every_;   // audit.every
  const int64_t one_in_;  // audit.lanes
  const Arena& arena_;
  const Vitals* vitals_;
  std::vector<std::vector<int>> lanes_;  // by rank
  comm::Group* group_ = nullptr;
  comm::OpOptions options_;
  std::vector<int> newcomers_;       // until they were checked
  bool checks_newcomers_ = false;    // in this step
  std::optional<int64_t> compared_;  // the last step in which a part of the state was compared
  std::vector<LaneCheck> checks_;    // of this step
  int own_lane_ = -1;
  int other_lane_ = -1;
  uint64_t hash_ = 0;  // of the last hash_state()
  std::optional<AuditFinding> finding_;
  Trusted trusted_;
};

}  // namespace muster::train
