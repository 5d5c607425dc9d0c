// The commit message: what the workers tell each other at the end of a step, in one small
// allreduce.
//
// It is combined by taking the maximum of every byte. Each worker fills in what it knows and leaves
// zeros elsewhere; what only one of them can know (the loss of a lane) is thereby selected, and
// what several know (the largest exponent of a block) is combined. Afterwards everybody holds the
// same message, and it alone decides, together with the state and the sums, what the step comes to:
// so a worker that has the sums can also apply a message that it got from somebody else.
//
//   one byte   per block: the largest exponent any lane had (exact::kNotFinite: not finite)
//   one record per lane: loss (double), samples (8 bytes), 1 + the first tensor that was not
//              finite (4), damage (4), a hash of the samples' numbers. Damage is, of a lane without
//              samples, 1 + the damaged block; of any other lane, how many samples are replaced
//   flags      a byte each: what is to happen at the step boundary that this commit makes
//   audit      a hash of a part of the state, and its complement: the largest of each byte and the
//              complement of the largest complement, which is the smallest, are equal only if all
//              hashes are
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::train {

struct LaneResult {
  double loss = 0;
  uint64_t samples = 0;
  int64_t not_finite = -1;  // the first tensor whose gradient was not, in the order of backward
  uint64_t used = 0;        // hash of the numbers of the samples, in order
  // The block of data.train because of whose damage the lane could not be computed; it has no
  // samples then. -1: none.
  int64_t damaged = -1;
  uint64_t replaced = 0;  // of its samples, those that are read in place of damaged ones
  bool finite() const { return not_finite < 0 && std::isfinite(loss); }
  bool operator==(const LaneResult&) const = default;
};

// What one worker requests; after the commit, what any of them requested and all of them do. Each
// is a byte of its own, because the maximum is taken byte by byte.
struct CommitFlags {
  uint8_t newer_roster = 0;  // a worker knows of a newer roster: all leave the group
  uint8_t evaluate = 0;      // the time for an evaluation has come
  uint8_t time_over = 0;     // the job's time is used up
  uint8_t stop = 0;          // the signal that tells the job to save and end
  bool operator==(const CommitFlags&) const = default;
};

class CommitMessage {
 public:
  CommitMessage(size_t blocks, int lanes);

  // All zeros.
  void clear();
  // What travels.
  std::span<uint8_t> bytes() { return bytes_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

  std::span<uint8_t> seen() { return std::span(bytes_).first(blocks_); }
  std::span<const uint8_t> seen() const { return std::span(bytes_).first(blocks_); }
  void set_lane(int lane, const LaneResult& result);
  LaneResult lane(int lane) const;
  int lanes() const { return lanes_; }
  // The first lane whose loss or gradient was not finite.
  std::optional<int> first_not_finite() const;
  // The blocks that lanes found to be damaged, ascending, each once.
  std::vector<uint64_t> damaged_blocks() const;
  CommitFlags flags() const;
  void set_flags(const CommitFlags& flags);
  // Of this worker's state (audit.h).
  void set_state_hash(uint64_t hash);
  // Whether all that set one set the same.
  bool states_agree() const;

 private:
  uint8_t* audit() { return bytes_.data() + bytes_.size() - kAudit; }
  const uint8_t* audit() const { return bytes_.data() + bytes_.size() - kAudit; }

  static constexpr size_t kAudit = 16;
  static constexpr size_t kRecord = 32;
  size_t blocks_;
  int lanes_;
  std::vector<uint8_t> bytes_;
};

}  // namespace muster::train
