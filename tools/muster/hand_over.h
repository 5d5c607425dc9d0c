// What needs a coordinator is done by another program, muster-launch: it has gRPC, whose libraries
// alone take longer to load than this program takes to answer (docs/benchmarks.md).
//
// It takes our place (exec), with the same command line: one process, as if it had been called in
// the first place. So signals, the terminal and the exit code need no thought.
#pragma once

#include <string>

#include "tools/muster/commands.h"

namespace muster::cli {

// Returns only if that did not work. Commands about data go to muster-data, for the same reason: it
// has libcurl and the libraries of formats.
Error hand_over(Context& context, const std::string& program = "muster-launch");

}  // namespace muster::cli
