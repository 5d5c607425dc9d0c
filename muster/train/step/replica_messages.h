// Messages of any length from each replica to all workers, in one exchange.
//
// Each worker sends those of its replicas together. Damage is noticed: a message has a hash, and
// with the lengths the workers compare a hash of what all of them should have in common. If that
// differs, their states are compared (audit.h); if these are the same, the group fails, and all
// begin again with the last commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/train/step/round_exchange.h"

namespace muster::train {

// One thread uses it.
class ReplicaMessages {
 public:
  // `largest`: of a message. `auditor` may be null: states are then not compared.
  ReplicaMessages(size_t replicas, size_t largest, Auditor* auditor);

  // A new exchange.
  void clear();
  // For each replica of this worker: bytes to append its message to, then end(). A replica that is
  // not finite has none.
  std::vector<std::byte>& begin(int replica);
  void end(bool finite);
  // Collective. `common`: the hash of what all workers should have in common. False: a replica is
  // not finite, or Peers::finite is false on some worker; all workers learn that.
  Result<bool> exchange(uint64_t common, const RoundExchange::Peers& peers);
  // Until the next exchange.
  std::span<const std::byte> of(size_t replica) const { return messages_[replica]; }
  // This worker cannot read the message of a replica, though it is as it was sent.
  static Error unreadable(size_t replica, const RoundExchange::Peers& peers);

 private:
  // What a worker tells about what it is about to send.
  struct Notice {
    uint64_t size;
    uint64_t common;
    uint64_t finite;
  };
  Result<std::vector<Notice>> exchange_notices(uint64_t common, const RoundExchange::Peers& peers);
  Status exchange_bytes(std::span<const Notice> notices, const RoundExchange::Peers& peers);
  Status unpack(std::span<const Notice> notices, const RoundExchange::Peers& peers, bool& finite);
  bool unpack(std::span<const std::byte> from, std::vector<bool>& there, bool& finite);

  const size_t largest_;
  Auditor* const auditor_;
  std::vector<std::span<const std::byte>> messages_;  // by replica
  std::vector<std::byte> out_;                        // of this worker
  size_t begin_ = 0;                                  // of the message under way
  std::vector<std::byte> all_;                        // those of all workers
  std::vector<size_t> begins_;                        // where in it, by member
  std::vector<std::byte> parts_;  // of all messages: what is exchanged at a time
};

}  // namespace muster::train
