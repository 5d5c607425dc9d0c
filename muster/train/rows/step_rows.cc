#include "muster/train/rows/step_rows.h"

#include "muster/train/rows/local_rows.h"
#include "muster/train/rows/served_rows.h"

namespace muster::train {

Result<std::unique_ptr<StepRows>> make_rows(const config::Job& job, const std::string& registry) {
  if (registry.empty()) return std::unique_ptr<StepRows>(std::make_unique<LocalRows>(job));
  return ServedRows::connect(registry);
}

}  // namespace muster::train
