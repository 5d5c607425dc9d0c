// What only the worker knows about a job: it opens the data and builds the model.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"
#include "muster/config/job.h"

namespace muster::cli {

// "parameters", "train_samples", "steps" and others. `name`: of the job file, for errors.
Result<nlohmann::ordered_json> check_with_worker(const std::string& worker, const config::Job& job,
                                                 const std::string& name, FileSystem& files);

}  // namespace muster::cli
