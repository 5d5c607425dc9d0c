// Whether the options of a job make sense together. Single values were checked when they were read
// (option.h); whether files exist and shapes fit is found out by those who open them.
#pragma once

#include "muster/base/result.h"
#include "muster/config/job.h"
#include "muster/config/table.h"

namespace muster::config {

// The first problem, as one sentence that starts with the place of the offending option if `places`
// knows it. An option that was changed from its default but has no effect is a problem too:
// somebody expects something of it. Pure.
Status validate(const Job& job, const Places& places = {});

}  // namespace muster::config
