// What the two programs of the command, muster and muster-launch, share: argv -> request -> exit
// code.
#pragma once

#include <functional>

#include "tools/muster/commands.h"

namespace muster::cli {

// Parses the words, lets `carry_out` do the rest, and prints what went wrong, as JSON too if asked.
int run_program(int argc, char** argv,
                const std::function<Outcome(const Request&, Context&)>& carry_out);

}  // namespace muster::cli
