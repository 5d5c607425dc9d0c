#include "muster/train/ledger.h"

#include <vector>

#include "muster/base/hash.h"

namespace muster::train {

uint64_t expected_ledger(const data::BatchPlan& plan, uint64_t seed, uint64_t samples,
                         uint64_t steps) {
  return expected_ledger(plan, data::FullOrder(seed, samples), steps);
}

uint64_t expected_ledger(const data::BatchPlan& plan, const data::SampleOrder& order,
                         uint64_t steps) {
  std::vector<uint64_t> numbers;
  uint64_t ledger = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint64_t lane = 0; lane < plan.lanes; ++lane) {
      const auto slice = data::lane_slice(plan, step, lane);
      numbers.resize(slice.count);
      order.samples(slice, numbers);
      const uint64_t used =
          numbers.empty() ? 0 : hash64(numbers.data(), numbers.size() * sizeof(numbers[0]));
      ledger = hash64(&used, sizeof(used), ledger);
    }
  }
  return ledger;
}

}  // namespace muster::train
