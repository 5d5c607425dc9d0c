// What this program does.
//
//   several.cc               train, resume: a coordinator, a supervisor, and what they say
//   status_command.cc        status
//   coordinator_command.cc   coordinator: one without workers of its own
//   join_command.cc          join: a worker without a coordinator of its own
#pragma once

#include "tools/muster/commands.h"

namespace muster::cli {

Outcome train_several(TrainArguments arguments, Context& context);
Outcome resume_several(ResumeArguments arguments, Context& context);
Outcome show_status(const StatusArguments& arguments, Context& context);
Outcome coordinate(const CoordinatorArguments& arguments, Context& context);
Outcome join(const JoinArguments& arguments, Context& context);

}  // namespace muster::cli
