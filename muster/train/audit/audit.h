// Finding a worker whose memory or processor is faulty.
//
// All workers of a job hold the same state, bit by bit, and a lane has the same gradient whoever
// computes it. So workers can be compared, and one that differs is faulty:
//
//   state    Each step, every worker hashes a part of its arena (another part each step, all of it
//            in audit.every steps), the scales and the counters. The commit message carries the
//            hash and its complement (commit.h): whether all are equal costs no further message.
//            When a state was restored, received or is about to be saved as the result, all of it
//            is compared.
//   lanes    Now and then each worker computes, besides its own lanes, one lane of a peer, and the
//            hashes of the gradients in fixed point are compared: one lane in audit.lanes. This
//            finds a processor that computes wrongly, which leaves all states equal.
//
// If something differs the step is not applied. The workers find out whose fault it is: for states
// the majority is right; a disputed lane is computed by all of them once more, and the majority is
// right. If there is no majority (two workers) nobody is accused. Then all go back to the newest
// checkpoint from before the fault can have had an effect (Trusted), without the faulty worker,
// which the coordinator removes. So the final bits are those of a run without the fault, if the
// fault was there at each comparison since it began.
//
// What is not found: a lane that is computed wrongly once, unless it is one of those compared; what
// a worker did that is gone before it was compared; and with a single worker there is nothing to
// compare with, so what it computes alone is taken for right.
//
// Pure functions; lockstep.h, recovery.h and membership.h use them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::train {

// One lane that two members compute: ranks in the group.
struct LaneCheck {
  int lane = 0;
  int owner = 0;
  int checker = 0;
  bool operator==(const LaneCheck&) const = default;
};

// In which steps lanes are compared, and which. `one_in`: audit.lanes. `lanes`: by rank. Each
// member that has lanes has one of them checked, by another member, and no member checks two: so
// the step takes one lane longer for each of them.
int64_t lane_check_interval(int64_t one_in, const std::vector<std::vector<int>>& lanes);
std::vector<LaneCheck> lane_checks(int64_t step, int64_t interval,
                                   const std::vector<std::vector<int>>& lanes);

// Which entries differ from the value that more than half of them have; nothing if no value has
// that many.
std::optional<std::vector<int>> minority(std::span<const uint64_t> values);

// What two members computed for a lane, and what all members computed for it afterwards, by rank.
struct LaneEvidence {
  LaneCheck check;
  uint64_t owner = 0;
  uint64_t checker = 0;
  std::vector<uint64_t> again;
};
// The ranks that computed it wrongly, once or both times; nothing if that cannot be told.
std::optional<std::vector<int>> wrong_ranks(const LaneEvidence& evidence);

// Since when what was computed is known to be right, in steps.
struct Trusted {
  int64_t state = 0;  // all members had the same state then
  int64_t lanes = 0;  // a lane of each member was compared then
  int64_t sweep = 0;  // in each step since then, a part of the state was compared
  // The newest step that a fault noticed at `step` cannot have affected. `every`: audit.every; all
  // parts of the state were compared in the last so many steps.
  int64_t before(int64_t step, int64_t every, bool lanes_differ) const;
};

// The outcome of a comparison in which something differed.
struct Verdict {
  std::vector<int> faulty;  // ranks, ascending; empty: it cannot be told
  // The others are not affected: the fault was noticed before anybody used what the faulty worker
  // has or computes. They keep their states.
  bool contained = false;
  int64_t trusted = 0;  // Trusted::before
  std::string what;     // a sentence for people, without names: "the state differs after ..."
};

}  // namespace muster::train
