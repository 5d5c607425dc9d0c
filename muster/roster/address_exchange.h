// The exchange of addresses for one group of a roster: every member sends one blob, and gets those
// of all members when all have sent theirs. Pure, like decide.h.
//
// Asking again is allowed: a member whose connection broke sends its blob anew. Once the exchange
// is complete its result stands, for a member that asks with another blob then has lost the sockets
// that the others are about to use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "muster/roster/types.h"

namespace muster::roster {

// By rank in the group. Shared, because each of n members gets all n blobs.
using Blobs = std::shared_ptr<const std::vector<std::string>>;

class AddressExchange {
 public:
  explicit AddressExchange(size_t members)
      : collected_(members), has_(members, false), missing_(members) {}

  enum class Answer : uint8_t { kLater, kComplete, kTooLate };
  // kComplete: blobs() are there now, for this rank and all before it that were told kLater.
  // kTooLate: the exchange was complete with another blob of this rank.
  Answer offer(int rank, std::string blob);
  bool offered(int rank) const;
  bool complete() const { return blobs_ != nullptr; }
  const Blobs& blobs() const { return blobs_; }

 private:
  std::vector<std::string> collected_;
  std::vector<bool> has_;
  size_t missing_ = 0;
  Blobs blobs_;
};

}  // namespace muster::roster
