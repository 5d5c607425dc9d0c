// The built-in losses; registry.h gives them names.
#pragma once

#include "muster/model/registry.h"

namespace muster::model {

// Class scores [samples, ..., classes] against class numbers [samples, ...]. Metric: accuracy.
void add_cross_entropy(Registry& registry);

// Scores [samples, 2] of "not clicked" and "clicked" against 0 and 1. The same as cross_entropy but
// for its metrics:
//   auc                 the area under the ROC curve: how likely a sample that was clicked has a
//                       higher score than one that was not. Scores are compared as logits in steps
//                       of 1/64 between -16 and 16; within a step they count as equal.
//   normalized_entropy  the mean log loss by that of always predicting the share of clicks in the
//                       evaluated data (He et al. 2014, "Practical lessons from predicting clicks
//                       on ads at Facebook"): below 1 is better than that.
//   accuracy
// The first two are NaN if all samples were clicked or none was, or if a score is NaN.
void add_click(Registry& registry);

// Values against values of as many elements. Metric: absolute_error.
void add_mse(Registry& registry);

}  // namespace muster::model
