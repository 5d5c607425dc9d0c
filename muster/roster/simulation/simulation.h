// The protocol under fire, in one process and in virtual time: hundreds of virtual workers and a
// coordinator that crash, hang, are stopped, cut off, slow, join and leave as a seed says, and a
// witness that checks every promise. The decisions are the real ones: Registrar (decide.h, lanes.h,
// exchange.h) on one side, follow.h and agree.h on the other.
//
// What is checked, for every seed:
// - no two rosters have one number, over all coordinators; every roster gives out each lane once;
// - no worker, in whatever group, roster or life, has another state after a step than an
// undisturbed run;
// - a removed key never counts again;
// - each sample is used exactly once in every pass of the committed history;
// - no group goes on from a step before a checkpoint that there was when it was formed;
// - a run with nothing but joins, leaves and changes of speed redoes no step and aborts no group;
// - one fault in a quiet job (a killed process, a lost machine, a cut link) holds the others up no
// longer
//   than lone_bound();
// - when faults stop, steps are committed again, by all workers that can be in, within bound().
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "muster/base/clock.h"
#include "muster/roster/simulation/witness.h"
#include "muster/roster/simulation/world.h"

namespace muster::roster::simulation {

struct Outcome {
  std::string violation;  // empty: none
  Tally tally;
  uint64_t events = 0;
  Duration time{0};      // virtual
  Duration recovery{0};  // from the last fault to three more commits by everybody
  std::string scenario;
  bool ok() const { return violation.empty(); }
};

// One run: a pure function of the seed. Every thing that happens is written to `trace`, if given.
Outcome simulate(uint64_t seed, Plant plant = Plant::kNothing, std::ostream* trace = nullptr);

}  // namespace muster::roster::simulation
