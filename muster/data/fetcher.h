// Data that is fetched while it is used: what the loader says to it.
//
// A data set in memory has no fetcher. One that is streamed (blocks/block_dataset.h) fetches ahead,
// and can, because the future is known: the order, and which lanes this worker computes from which
// step on. This decides only when things are fetched, never what a batch holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muster/data/plan.h"
#include "muster/data/sample_order.h"

namespace muster::data {

class Replacements;

// What will be read.
struct ReadPlan {
  std::shared_ptr<const SampleOrder> order;
  BatchPlan batches;
  std::vector<int> lanes;
  uint64_t step = 0;   // the first
  uint64_t ahead = 0;  // how many steps of a lane are read before the first of them is taken
  // What is read instead of damaged blocks (blocks/replacements.h); null: none is replaced.
  // NOLINTNEXTLINE(readability-redundant-member-init): GCC warns who leaves it out
  std::shared_ptr<const Replacements> replacements = {};
};

// Safe for concurrent use.
class Fetcher {
 public:
  virtual ~Fetcher() = default;
  // From now on fetches ahead for this plan, and for no other. What was fetched and is still wanted
  // stays.
  virtual void follow(const ReadPlan& plan) = 0;
  // Fetches nothing ahead any more. Reads still work.
  virtual void pause() = 0;
  // This lane's batch of this step was taken. What only earlier steps of the lane needed may go;
  // this step may be read again.
  virtual void taken(uint64_t step, int lane) = 0;
  // "waiting for data: 3 requests, oldest 1.2 s", or "" when no reader waits.
  virtual std::string waiting() const = 0;
};

}  // namespace muster::data
