#include "muster/roster/address_exchange.h"

#include <utility>

#include "muster/base/check.h"

namespace muster::roster {

AddressExchange::Answer AddressExchange::offer(int rank, std::string blob) {
  const auto place = static_cast<size_t>(rank);
  MUSTER_CHECK(rank >= 0 && place < has_.size(), "a rank outside the group");
  if (blobs_) return (*blobs_)[place] == blob ? Answer::kComplete : Answer::kTooLate;
  collected_[place] = std::move(blob);
  if (!has_[place]) {
    has_[place] = true;
    --missing_;
  }
  if (missing_ > 0) return Answer::kLater;
  blobs_ = std::make_shared<const std::vector<std::string>>(std::move(collected_));
  collected_.clear();
  return Answer::kComplete;
}

bool AddressExchange::offered(int rank) const {
  return rank >= 0 && static_cast<size_t>(rank) < has_.size() && has_[static_cast<size_t>(rank)];
}

}  // namespace muster::roster
