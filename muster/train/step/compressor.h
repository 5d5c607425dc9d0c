// How the gradients of all replicas are added up with less traffic than they are large, and with a
// loss that each replica keeps for the next step (gradient_rounds.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "muster/train/step/round_exchange.h"
#include "muster/train/step/strategy.h"

namespace muster::train {

// One thread calls it.
class Compressor {
 public:
  virtual ~Compressor() = default;

  // A replica of this worker; none if it is another worker's.
  struct Replica {
    // What it has to send: all blocks of the layout. Those of statistics are not used.
    std::vector<float> error;
    std::vector<float> statistics;  // what it has changed of those, which is sent as it is
    bool finite = true;
  };

  // Collective. Fills `sum`, all blocks, with what all replicas send, and subtracts from the errors
  // of this worker's what each has sent. The blocks of statistics get the sum of those.
  // `common`: the hash of what all workers should have in common. False: some value is not finite,
  // or a worker has said so (Peers::finite), which all workers learn.
  virtual Result<bool> exchange(int64_t step, std::span<Replica> replicas, uint64_t common,
                                const RoundExchange::Peers& peers, std::span<float> sum) = 0;

  // What it has from one step to the next, the same on all workers, is part of the state of the
  // job: a buffer each, at the beginning and the end of what is committed together.
  virtual void begin(std::span<const float>) {}
  virtual std::span<const float> state() const { return {}; }
};

// That of the job's strategy.
std::unique_ptr<Compressor> make_compressor(const config::Job& job, const StrategyParts& parts);

}  // namespace muster::train
