// What recovery needs to know of a training state, whatever it consists of: how far it is, its
// bytes, and how to apply a commit that this worker missed.
//
// Bits follow from the position: two workers of one job whose states are at the same position have
// the same bytes. So a worker without a state takes the bytes of any that has one, and a worker
// that missed a commit needs only its message, if it holds the sums that the commit is about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "muster/base/result.h"
#include "muster/roster/types.h"
#include "muster/train/state/counters.h"

namespace muster::train {

// How far a state with these counters is.
roster::Position position_of(const Counters& counters);

class State {
 public:
  virtual ~State() = default;

  // All of it, always in the same place.
  virtual std::span<std::byte> bytes() = 0;
  // How far it is.
  virtual roster::Position position() const = 0;
  // Whether what decides the next step is as the last commit left it; if not, this machine's memory
  // is faulty.
  virtual bool is_intact() const = 0;
  // Its bytes are now those of another worker, or of a checkpoint.
  virtual void was_replaced() = 0;

  // The sums that the next commit is about are here, on every worker, and not applied.
  virtual bool holds_sums() const = 0;
  // The message of the last commit that succeeded, or that was taken over from another worker. It
  // stays until the next one has succeeded: a worker that missed it may ask for it until then.
  virtual std::span<const uint8_t> message_bytes() const = 0;
  // The position that this message led away from, to the present one.
  virtual std::optional<roster::Position> message_of() const = 0;
  // Applies the message of a commit that this worker missed. Needs holds_sums(). True: a step was
  // committed; false: it has to be computed again.
  virtual Result<bool> apply_message(std::span<const uint8_t> message) = 0;
  // The bytes were or are about to be changed by something other than a commit: sums and message no
  // longer belong to them.
  virtual void forget() = 0;
};

}  // namespace muster::train
