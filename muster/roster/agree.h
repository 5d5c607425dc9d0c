// After a group is formed its members agree on where to go on. Pure: every member computes this
// from the same reports, in rank order, and so comes to the same conclusion without another
// message.
//
// Why nothing ever needs undoing. A worker enters the commit of a step only when it has the full
// sums of it. The commit is an allreduce, so whoever saw it succeed knows that every member of that
// group had entered. Hence, among the members that stayed, either nobody saw the commit of the step
// (all do it again, and get the same bits), or one did, and all others have the full sums: they
// take the commit message from that one and apply the update. A worker that was away for longer, or
// has just come, fits neither case and takes over the whole state. Since bits follow from the
// position alone, it does not matter in which group, or how long ago, somebody reached it.
//
// A checkpoint is a state too. One that is newer than every state in memory is loaded: otherwise a
// worker that was away for long, and is the only one left, would have all do again what others had
// committed and saved. It need not be compared with the states, since all go on from it.
//
// After a rollback (types.h) it is the other way round: what was committed before is invalid.
// Whoever does not know of it yet is treated like one that has just come.
//
// This holds for exact reduction. With `reduction: native` two groups may reach one position with
// different bits, so there a worker that was out must report has_state = false.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muster/roster/types.h"

namespace muster::roster {

enum class Action : uint8_t {
  kGoOn,         // is where all shall be
  kRollForward,  // has the sums: takes the commit message from `message_from` and applies the
                 // update
  kReceive,      // takes over the state from `sources`
  kRestore,      // loads its checkpoint of `position.step`, or makes the initial state for step 0;
                 // a state it may have is given up
};
std::string_view action_name(Action action);

struct Agreement {
  Position position;            // where all are when every rank has done its action
  std::vector<Action> actions;  // by rank
  int message_from = -1;        // the rank whose commit message is sent round; -1: nobody rolls
  // Ranks that have the state once those that roll forward or restore have done so; ascending.
  // Receivers take an equal stripe of the state from each: see stripes().
  std::vector<int> sources;
  // The last that any member knows of: states and checkpoints that it made invalid were not used.
  Rollback rollback;
  std::string reason;  // for the log

  bool any(Action action) const;
};

Agreement agree(std::span<const StateReport> reports);

struct Stripe {
  int source = 0;  // rank
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Stripe&) const = default;
};

// Which bytes of a state of `bytes` each receiver takes from which source: contiguous, each
// beginning at a multiple of `align`, sizes as equal as that allows; empty stripes are left out.
// With more sources than `most`, only so many are used, chosen by `receiver` so that receivers
// spread over them.
std::vector<Stripe> stripes(uint64_t bytes, std::span<const int> sources, int receiver,
                            uint64_t align = 4096, size_t most = 8);

}  // namespace muster::roster
