// The checkpoints of a simulated training, in place of ckpt::SnapshotStore and the run directory,
// and from which of them eras have begun.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "muster/roster/types.h"

namespace muster::ps::simulation {

struct Checkpoint {
  uint64_t position = 0;            // Worker::position
  uint64_t group = 0;               // the number of the one that wrote it
  std::vector<uint64_t> eras;       // by position: that in which it was computed
  std::vector<std::string> shards;  // TableData::save_rows
};

class Checkpoints {
 public:
  // The rule of SnapshotStore: one that a newer group has overtaken, or that was rolled back, is
  // left out. True: it was written.
  bool write(Checkpoint checkpoint);
  // What groups up to this number computed after that position is invalid (roster::Rollback).
  void roll_back(const roster::Rollback& rollback);
  const roster::Rollback& rollback() const { return rollback_; }
  // The position of the newest; 0: there is none.
  uint64_t newest() const { return all_.empty() ? 0 : all_.rbegin()->first; }
  // Null: there is none any more.
  std::shared_ptr<const Checkpoint> find(uint64_t position) const;

  // This era begins with that checkpoint; null: at the beginning.
  void begin_era(uint64_t era, const std::shared_ptr<const Checkpoint>& from);
  // A worker has loaded it, on all shards. True: it is the first, and it was a checkpoint.
  bool note_loaded(uint64_t era);
  uint64_t last_era() const { return begun_.empty() ? 0 : begun_.rbegin()->first; }
  // In which eras everything up to this position of this era was computed.
  std::vector<uint64_t> eras_of(uint64_t era, uint64_t position) const;

 private:
  std::map<uint64_t, std::shared_ptr<const Checkpoint>> all_;  // by position
  std::map<uint64_t, std::vector<uint64_t>> begun_;            // by era: those before it
  std::set<uint64_t> loaded_;
  roster::Rollback rollback_;
};

}  // namespace muster::ps::simulation
