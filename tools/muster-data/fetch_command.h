// What needs the copy of a run that a job sent elsewhere (muster/copy/fetch.h).
#pragma once

#include "tools/muster/commands.h"

namespace muster::cli {

// `muster runs fetch`: makes a run directory of it.
Outcome fetch_run(const RunsFetchArguments& arguments, Context& context);
// `muster resume` of a copy: fetches it, and becomes `muster resume` of the run directory.
Outcome resume_copy(const ResumeArguments& arguments, Context& context);

}  // namespace muster::cli
