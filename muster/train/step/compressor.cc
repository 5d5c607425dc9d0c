#include "muster/train/step/compressor.h"

#include "muster/train/step/block_compressor.h"
#include "muster/train/step/power_compressor.h"

namespace muster::train {

std::unique_ptr<Compressor> make_compressor(const config::Job& job, const StrategyParts& parts) {
  if (job.sync.strategy == "powersgd") return std::make_unique<PowerCompressor>(job, parts);
  return std::make_unique<BlockCompressor>(job, parts);
}

}  // namespace muster::train
