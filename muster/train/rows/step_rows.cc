#include "muster/train/rows/step_rows.h"

#include <utility>

#include "muster/train/rows/sync_rows.h"

namespace muster::train {

Result<std::unique_ptr<StepRows>> make_rows(const config::Job& job, const std::string& registry) {
  MUSTER_TRY(auto tables, open_tables(job, registry));
  return std::unique_ptr<StepRows>(std::make_unique<SyncRows>(std::move(tables)));
}

}  // namespace muster::train
