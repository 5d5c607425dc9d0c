// Sums over replicas, in fixed point like those of gradients: of what they changed, or of what one
// of them has, so that all workers get it.
//
// The values are all there when a sum begins, unlike gradients. So the largest exponent of each
// block is exchanged first, and every scale fits.
//
// What only one replica adds to is not summed over the workers: its integers are sent to all
// (replica_messages.h), those of all replicas at the same time. In an allreduce one worker would
// send, and then all of them, so a link would be idle for half of the time. But if workers on one
// host share memory, an allreduce is better: it crosses the host's link once for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "muster/comm/group.h"
#include "muster/train/step/strategy.h"
#include "muster/train/step/sum_exchange.h"

namespace muster::train {

class ReplicaMessages;

class ReplicaSums {
 public:
  // Of buffers with this layout, which must outlive it. Tensors from `late` on are statistics,
  // which always have all bits.
  ReplicaSums(const config::Job& job, const exact::BlockLayout& layout, size_t late,
              Memory& memory);
  ~ReplicaSums();

  struct Sum {
    size_t buffer = 0;     // whose name is up to the user
    int only = -1;         // the only replica that adds to it; -1: all do
    int64_t bits = 32;     // fewer are rounded stochastically
    bool rotated = false;  // before it is rounded
  };
  // Before the first exchange. Returns its number.
  size_t add(const Sum& sum);
  const Sum& operator[](size_t number) const { return sums_[number].of; }
  size_t size() const { return sums_.size(); }

  // What a replica of this worker has: all blocks of the layout.
  using Values = std::function<std::span<const float>(size_t buffer, int replica)>;
  // Collective: fills all sums with the values of this worker's and all other workers' replicas.
  // `number`: of the exchange, another one each time: random numbers depend on it. False: some
  // value is not finite, which all workers learn.
  Result<bool> exchange(std::span<const int> replicas, const Values& values, int64_t number,
                        comm::Group& group, Duration timeout, const Vitals& vitals);
  // Block b of a sum, in `scratch`, which has room for a block.
  std::span<const float> read(size_t number, size_t block, std::span<float> scratch) const {
    return sums_[number].sum->read(block, scratch);
  }

 private:
  struct Entry {
    Sum of;
    std::unique_ptr<GradientSum> sum;
    std::vector<uint8_t> exponents;  // of the sum under way, by block
  };
  static std::vector<int> adding(const Sum& sum, std::span<const int> replicas);
  void fill(Entry& entry, std::span<const int> adding, const Values& values, const Vitals& vitals);
  // Those of one replica each, which their workers have. `common`: a hash that all workers have.
  Status send_to_all(std::span<const int> replicas, uint64_t common, comm::Group& group,
                     Duration timeout, const Vitals& vitals);

  const config::Job& job_;
  const exact::BlockLayout& layout_;
  const size_t late_;
  Memory& memory_;
  std::vector<Entry> sums_;
  SumExchange exchange_;
  std::unique_ptr<ReplicaMessages> messages_;  // once it was needed
};

}  // namespace muster::train
