// From the job file to how its coordinator decides: the one place that knows both.
#pragma once

#include <string>

#include "muster/config/job.h"
#include "muster/roster/types.h"

namespace muster::roster {

// `name`: of the run; workers that join for another are refused. `expected`: how many were
// started. The term is left at its default: whoever starts a coordinator has a clock.
Options options_of(const config::Job& job, std::string name, int32_t expected);

}  // namespace muster::roster
