#include "muster/data/make_order.h"

#include "muster/data/blocks/block_index.h"
#include "muster/data/blocks/strata.h"

namespace muster::data {

Result<std::shared_ptr<const SampleOrder>> make_order(const config::DataOptions& options,
                                                      const Dataset& dataset, uint64_t seed,
                                                      const BatchPlan& batches) {
  const auto index = dataset.blocks();
  if (index == nullptr && options.order == "strata") {
    return Error(ErrorKind::kJob,
                 "data.order strata is for data that is read by blocks, and data.train is not; "
                 "remove it");
  }
  if (index == nullptr || options.order == "full") {
    return std::shared_ptr<const SampleOrder>(std::make_shared<FullOrder>(seed, dataset.size()));
  }
  const StrataOptions strata = {
      .window = static_cast<uint64_t>(options.window),
      .homes = options.homes == "fixed" ? Homes::kFixed : Homes::kMoving,
  };
  return std::shared_ptr<const SampleOrder>(std::make_shared<Strata>(
      index, seed, batches.batch, batches.lanes, strata_shape(*index, batches.lanes, strata)));
}

}  // namespace muster::data
