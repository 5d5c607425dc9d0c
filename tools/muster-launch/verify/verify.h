// verify: the proof as a command.
#pragma once

#include "tools/muster/commands.h"

namespace muster::cli {

Outcome verify(const VerifyArguments& arguments, Context& context);

}  // namespace muster::cli
