// Runs short commands of the system's tools.
#pragma once

#include <string>

#include "muster/base/result.h"

namespace muster::lab {

// A line for /bin/sh, also finding what is in /usr/sbin and /sbin. Waits for its end. If it fails:
// an error with the line and what it said.
Status run_shell(const std::string& line);

}  // namespace muster::lab
