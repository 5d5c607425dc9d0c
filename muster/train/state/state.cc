#include "muster/train/state/state.h"

namespace muster::train {

roster::Position position_of(const Counters& counters) {
  // An evaluation changes the state too (the best so far, the last figures), once at most in a
  // step.
  const int64_t evaluated = counters.evaluation.step == counters.step ? 1 : 0;
  return {static_cast<uint64_t>(counters.step),
          static_cast<uint32_t>(counters.redo.attempt + evaluated)};
}

}  // namespace muster::train
