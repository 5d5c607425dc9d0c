// Compresses gradients block by block, each by itself (sync/block_code.h).
//
// A replica's message, little-endian: for each block 16 bits, how many bytes it has; these bytes;
// the changes of statistics, as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/sync/block_code.h"
#include "muster/train/step/compressor.h"
#include "muster/train/step/replica_messages.h"

namespace muster::train {

class BlockCompressor final : public Compressor {
 public:
  BlockCompressor(const config::Job& job, const StrategyParts& parts);

  Result<bool> exchange(int64_t step, std::span<Replica> replicas, uint64_t common,
                        const RoundExchange::Peers& peers, std::span<float> sum) override;

 private:
  void pack(Replica& replica, std::vector<std::byte>& out);
  // Where each block's bytes are.
  bool index(std::span<const std::byte> message, std::span<std::span<const std::byte>> blocks);

  StrategyParts parts_;
  const size_t blocks_;      // without those of statistics
  const size_t statistics_;  // values
  const std::unique_ptr<sync::BlockCode> code_;
  ReplicaMessages messages_;
  std::vector<std::vector<std::byte>> encoded_;   // by block: of the replica under way
  std::vector<std::span<const std::byte>> from_;  // by replica and block
};

}  // namespace muster::train
