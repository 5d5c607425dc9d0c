// When something that happens "every 500 steps", "every pass" or "every 90s" is due. Pure: the same
// step of the same job gives the same answer, before and after a restart (seconds excepted, which
// only decide about checkpoints and progress, never about numbers).
#pragma once

#include <cmath>
#include <cstdint>

#include "muster/config/job.h"
#include "muster/train/state/counters.h"

namespace muster::train {

struct Progressed {
  int64_t step = 0;           // committed steps
  uint64_t samples = 0;       // in them
  uint64_t last_samples = 0;  // in the step, or the steps, just committed
  uint64_t per_pass = 1;      // samples in a pass
  double seconds_since = 0;   // since it was last done
  int64_t last_steps = 1;     // committed together
};

inline Progressed progressed(const Counters& counters, uint64_t per_pass) {
  return {.step = counters.step,
          .samples = counters.samples,
          .last_samples = counters.last.samples,
          .per_pass = per_pass,
          .last_steps = counters.last.steps};
}

inline bool is_due(const config::Every& every, const Progressed& at) {
  if (every.value <= 0) return false;
  switch (every.unit) {
    case config::Every::Unit::kSteps: {
      const auto n = static_cast<int64_t>(std::ceil(every.value));
      return at.step / n > (at.step - at.last_steps) / n;
    }
    case config::Every::Unit::kPasses: {
      // Did the last step cross a multiple of value * per_pass samples?
      const double length = every.value * static_cast<double>(at.per_pass);
      return std::floor(static_cast<double>(at.samples) / length) >
             std::floor(static_cast<double>(at.samples - at.last_samples) / length);
    }
    case config::Every::Unit::kSeconds:
      return at.seconds_since >= every.value;
  }
  return false;
}

}  // namespace muster::train
