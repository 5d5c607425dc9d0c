// The tables of a report: summary, job and environment. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/muster/report/history.h"
#include "tools/muster/report/run_report.h"

namespace muster::cli::report {

History history_in(const RunReport& run);

// A row for each fact, a column for each run.
std::string summary_table(const std::vector<RunReport>& runs);
// The options that are not at their default; of several runs, those that differ are marked. Then
// each job as it was written.
std::string job_table(const std::vector<RunReport>& runs);
// A row for each attempt.
std::string environment_table(const std::vector<RunReport>& runs);

}  // namespace muster::cli::report
