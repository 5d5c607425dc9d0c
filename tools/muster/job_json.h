// A job as JSON, typed as the option table types it.
#pragma once

#include <nlohmann/json.hpp>

#include "muster/config/job.h"
#include "muster/config/option.h"

namespace muster::cli {

nlohmann::ordered_json option_value_json(const config::Option& option, const config::Job& job);

// All options, nested as in a job file.
nlohmann::ordered_json job_json(const config::Job& job);

}  // namespace muster::cli
