// What a coordinator tells of, as events of the run (track/run_events.h).
#pragma once

#include "muster/roster/registrar.h"
#include "muster/track/run_events.h"

namespace muster::cli {

// For one thread: that of the coordinator's events.
class RosterEvents {
 public:
  explicit RosterEvents(track::RunEventLog& log) : log_(log) {}

  void roster(const roster::Issued& issued);
  void gone(const roster::Gone& gone);
  // What roster() and gone() tell too is left out.
  void event(const roster::Event& event);

 private:
  track::RunEventLog& log_;
  roster::RosterPtr told_;  // null: none yet
};

}  // namespace muster::cli
