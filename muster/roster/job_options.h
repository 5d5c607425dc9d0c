// From the job file to how its coordinator decides: the one place that knows both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/config/job.h"
#include "muster/roster/types.h"

namespace muster::roster {

// The roles and groups of a job with this `sync.strategy`.
std::vector<RoleOptions> roles_of(std::string_view strategy);

// `name`: of the run; workers that join for another are refused. `expected`: how many were
// started. The term is left at its default: whoever starts a coordinator has a clock.
Options options_of(const config::Job& job, std::string name, int32_t expected);

}  // namespace muster::roster
