// A report as one HTML page: nothing is loaded from anywhere, there are no scripts.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/muster/report/run_report.h"

namespace muster::cli::report {

// What every report contains: `muster report` replaces files that have it, and no others.
inline constexpr std::string_view kGenerator =
    "<meta name=\"generator\" content=\"muster report\">";

// `made`: when, for people. At least one run.
std::string page(const std::vector<RunReport>& runs, const std::string& made);

// Of the page; in style.cc.
extern const std::string_view kStyle;

}  // namespace muster::cli::report
