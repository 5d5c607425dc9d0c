// Whether a worker that ended is started again, and when: a pure function of (now, what the slot
// has been through, how it ended, options) that returns the decision and its reason.
//
// The first restart comes at once: a worker that was killed shall take part again within a second.
// Whoever ends again and again waits longer each time, so that a machine that cannot work is not
// kept busy with trying, and after `most` restarts within `within` its slot is given up.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "muster/base/clock.h"
#include "muster/launch/ending.h"

namespace muster::launch {

struct RestartOptions {
  int64_t most = 20;  // workers.restarts; 0: never
  Duration within = std::chrono::minutes(10);
  Duration first_pause = std::chrono::milliseconds(100);  // before the second restart; doubles
  Duration longest_pause = std::chrono::seconds(30);
  Duration settled = std::chrono::seconds(2);  // who ran this long begins anew
  // Any error that a worker ends with ends the job, and only those that were killed are started
  // again: for work that can be continued at any time.
  bool errors_end_job = false;
  // Likewise of what its machine cannot do (kMachine): for parameter servers, all of which hold
  // about as many rows.
  bool machine_errors_end_job = false;
  // What its machine cannot do it may learn to (memory gets free, credentials are put there). After
  // so many restarts for that reason it is not likely any more. Whoever ran for `within` begins
  // anew.
  int64_t most_of_machine = 4;
};

struct SlotHistory {
  Moment started;               // the last time
  int64_t in_a_row = 0;         // restarts since it last ran for `settled`
  int64_t of_machine = 0;       // restarts for kMachine since it last ran for `within`
  std::deque<Moment> restarts;  // oldest first; those that may still count
};

enum class Then {
  kAgain,    // start it again after `after`
  kLeft,     // it left as it was asked to, or the job is finished
  kStopped,  // somebody stopped the whole job through it
  kGiveUp,   // nothing more in this slot; the job goes on with the others
  kEndJob,   // what went wrong would go wrong everywhere
};

struct Verdict {
  Then then = Then::kAgain;
  Duration after{0};
  int64_t in_a_row = 0;    // with kAgain: that restart included
  int64_t of_machine = 0;  // likewise
  std::string reason;      // behind the worker's name: "was killed by SIGKILL; it is started again"
};

Verdict after_end(Moment now, const SlotHistory& history, const Ending& ending,
                  const RestartOptions& options);

// Writes down that `verdict`, a kAgain, is carried out now.
void note_restart(Moment now, SlotHistory& history, const Verdict& verdict,
                  const RestartOptions& options);

}  // namespace muster::launch
