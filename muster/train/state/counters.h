// The numbers of a job's state beside weights, optimizer state and scales: where it is, and what it
// would report. They are part of the state so that any worker can take over and say the same.
//
// A checkpoint has each of them under its name (counter_fields), so that a later version can add,
// remove and move them: docs/checkpoints.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "muster/ckpt/safetensors.h"

namespace muster::train {

// With the loss, which is the first.
inline constexpr size_t kMostMetrics = 16;
// Blocks of data.train that are replaced because they are damaged.
inline constexpr size_t kMostReplaced = 128;

struct Counters {
  // ---- What has been trained. What is computed next follows from these and `redo`.
  int64_t step = 0;      // committed steps
  uint64_t samples = 0;  // in them
  uint64_t skipped = 0;  // of them without an update, because something was not finite
  // Which samples they were computed from: a chain of the hashes that the lanes made of the numbers
  // of the samples they really had, in the order of steps and lanes. Equal to expected_ledger()
  // (ledger.h) if each pass used each sample once: not if damaged ones were replaced.
  uint64_t ledger = 0;

  // ---- The step under way.
  struct Redo {
    // Changes of the state since the last commit: of the scales; of `replaced`; or its weights have
    // come (step/server_steps.h).
    int64_t attempt = 0;
    int64_t overflowed = 0;  // 1: it is computed again because a scale was too small
  } redo;

  // ---- For reports.
  uint64_t redone = 0;                // steps computed again because a scale was too small
  int64_t fewest_gradient_bits = -1;  // of LastStep::gradient_bits; -1: none yet
  struct LastStep {                   // StepReport (strategy.h)
    double loss = 0;
    double lr = 0;
    double gradient_norm = -1;
    uint64_t samples = 0;
    int64_t steps = 1;
    int64_t redone = 0;
    int64_t skipped = 0;
    int64_t gradient_bits = -1;
  } last;
  struct Evaluation {                           // the last one
    int64_t step = -1;                          // -1: none yet
    std::array<double, kMostMetrics> values{};  // in the order of EvalReport
  } evaluation;
  struct Best {
    double value = 0;   // of the test metric that decides
    int64_t step = -1;  // -1: no evaluation yet
    int64_t stale = 0;  // evaluations since then
  } best;
  // ---- For rows of tables (train/rows): when the state was last loaded, by the number of the
  // roster.
  uint64_t era = 0;

  // ---- Damaged data (data.on_damage: replace; data/blocks/replacements.h). What is computed next
  // follows from this too. A checkpoint without it is of a version that replaced nothing.
  struct Replaced {
    uint64_t samples = 0;  // that committed steps used in place of damaged ones
    int64_t attempts = 0;  // of redo.attempt: those because damage was found
    uint64_t count = 0;    // of blocks
    // Their numbers, in the order in which they were found; those found in one commit ascending.
    std::array<uint64_t, kMostReplaced> blocks{};

    // A count that this machine's memory has changed is noticed elsewhere (Arena::seal_counters).
    std::span<const uint64_t> damaged() const {
      return std::span(blocks).first(std::min<uint64_t>(count, kMostReplaced));
    }
  } replaced;
};

struct CounterField {
  std::string_view name;
  size_t offset;
  ckpt::DType type;
  size_t count = 1;
  constexpr size_t bytes() const { return count * 8; }
};
// All of them, in the order of memory.
std::span<const CounterField> counter_fields();

// From a checkpoint's state. It must have those that decide what is computed next; another one that
// it does not have keeps its default. Reads format 1 too, in which all were one tensor of bytes.
Result<Counters> read_counters(const ckpt::SafetensorsFile& state);

}  // namespace muster::train
