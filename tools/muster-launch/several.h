// train and resume with several workers: a coordinator, a supervisor, and what they say to a
// person.
#pragma once

#include "tools/muster/commands.h"

namespace muster::cli {

Outcome train_several(const TrainArguments& arguments, Context& context);
Outcome resume_several(const ResumeArguments& arguments, Context& context);

}  // namespace muster::cli
