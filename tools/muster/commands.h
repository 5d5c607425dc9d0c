// What the commands do. Each takes its arguments and what it needs of the outside world, prints its
// result, and returns the exit code; an Error is printed by main(), which makes its kind the exit
// code.
//
//   launch_commands.cc   train, resume: make or choose the run, then be the worker's doorkeeper
//   hand_over.cc         status, join, coordinator, and train with several workers are done by
//                        another program, muster-launch; data index, info, check, pack and runs
//                        fetch by muster-data, and resume of a copy begins there
//   ask_commands.cc      eval, predict, replay: the worker answers
//   predict_command.cc   predict --out: several workers write a file
//   config_commands.cc   config check, show, explain, schema
//   runs_commands.cc     runs list, show, compare
//   plot_command.cc      runs plot
//   report_command.cc    report
//   export_command.cc    export
//   doctor_command.cc    doctor
//   plan_command.cc      plan
//   completion.cc        completion
//   version_command.cc   version
#pragma once

#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/file_system.h"
#include "muster/base/result.h"

#include "tools/muster/arguments.h"
#include "tools/muster/console.h"

namespace muster::cli {

struct Context {
  Console& console;
  FileSystem& files;
  const Clock& clock;
  const std::vector<std::string>& words;  // the command line
};

using Outcome = Result<int>;  // the exit code

Outcome run(const TrainArguments& arguments, Context& context);
Outcome run(const ResumeArguments& arguments, Context& context);
Outcome run(const VerifyArguments& arguments, Context& context);
Outcome run(const StatusArguments& arguments, Context& context);
Outcome run(const CoordinatorArguments& arguments, Context& context);
Outcome run(const JoinArguments& arguments, Context& context);
Outcome run(const EvalArguments& arguments, Context& context);
Outcome run(const PredictArguments& arguments, Context& context);
Outcome run(const ReplayArguments& arguments, Context& context);
Outcome run(const ConfigCheckArguments& arguments, Context& context);
Outcome run(const ConfigShowArguments& arguments, Context& context);
Outcome run(const ConfigExplainArguments& arguments, Context& context);
Outcome run(const ConfigSchemaArguments& arguments, Context& context);
Outcome run(const RunsListArguments& arguments, Context& context);
Outcome run(const RunsShowArguments& arguments, Context& context);
Outcome run(const RunsCompareArguments& arguments, Context& context);
Outcome run(const RunsPlotArguments& arguments, Context& context);
Outcome run(const RunsFetchArguments& arguments, Context& context);
Outcome run(const ReportArguments& arguments, Context& context);
Outcome run(const ExportArguments& arguments, Context& context);
Outcome run(const DoctorArguments& arguments, Context& context);
Outcome run(const PlanArguments& arguments, Context& context);
Outcome run(const DataIndexArguments& arguments, Context& context);
Outcome run(const DataInfoArguments& arguments, Context& context);
Outcome run(const DataCheckArguments& arguments, Context& context);
Outcome run(const DataPackArguments& arguments, Context& context);
Outcome run(const CompletionArguments& arguments, Context& context);
Outcome run(const VersionArguments& arguments, Context& context);
Outcome run(const TextRequest& request, Context& context);

}  // namespace muster::cli
