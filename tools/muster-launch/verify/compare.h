// What a run came to, and in what two runs differ.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::cli {

// Without what time has to do with.
struct RunOutcome {
  nlohmann::ordered_json result;
  std::vector<nlohmann::json> records;  // of its metrics
};

// An error if it has not come to its end.
Result<RunOutcome> read_outcome(const std::string& run, FileSystem& files);

// A phrase for each thing that is not equal; of the metrics, the first line that differs. Pure.
std::vector<std::string> differences(const RunOutcome& undisturbed, const RunOutcome& disturbed);
// The same of asynchronous runs, whose weights are not to be equal: which samples were used, and
// how the run ended.
std::vector<std::string> differences_of_work(const RunOutcome& undisturbed,
                                             const RunOutcome& disturbed);

}  // namespace muster::cli
