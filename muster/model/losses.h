// The built-in losses; registry.h gives them names.
#pragma once

#include "muster/model/registry.h"

namespace muster::model {

// Class scores [samples, ..., classes] against class numbers [samples, ...]. Metric: accuracy.
void add_cross_entropy(Registry& registry);

// Values against values of as many elements. Metric: absolute_error.
void add_mse(Registry& registry);

}  // namespace muster::model
