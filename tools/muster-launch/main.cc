// muster-launch: what of `muster` needs a coordinator. See README.md in this folder.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <variant>

#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/verify/verify.h"
#include "tools/muster/program.h"

namespace {

using muster::Error;
using muster::ErrorKind;
using namespace muster::cli;  // NOLINT(google-build-using-namespace): this is a part of it

Outcome carry_out(const TrainArguments& arguments, Context& context) {
  return train_several(arguments, context);
}
Outcome carry_out(const ResumeArguments& arguments, Context& context) {
  return resume_several(arguments, context);
}
Outcome carry_out(const VerifyArguments& arguments, Context& context) {
  return verify(arguments, context);
}
Outcome carry_out(const StatusArguments& arguments, Context& context) {
  return show_status(arguments, context);
}
Outcome carry_out(const CoordinatorArguments& arguments, Context& context) {
  return coordinate(arguments, context);
}
Outcome carry_out(const JoinArguments& arguments, Context& context) {
  return join(arguments, context);
}
template <typename Other>
Outcome carry_out(const Other&, Context&) {
  return Error(ErrorKind::kUsage, "muster-launch is a part of muster: call that");
}

// A training that `muster verify` started is stopped when that is killed (launch/process.h).
void follow_launcher() {
  const char* launcher = std::getenv("MUSTER_LAUNCHER_PID");  // NOLINT(concurrency-mt-unsafe)
  const auto is_parent = [&] { return std::to_string(getppid()) == launcher; };
  if (launcher == nullptr || !is_parent()) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (!is_parent()) raise(SIGTERM);  // it was killed a moment ago
}

}  // namespace

int main(int argc, char** argv) {
  follow_launcher();
  return run_program(argc, argv, [](const Request& request, Context& context) {
    return std::visit([&](const auto& arguments) { return carry_out(arguments, context); },
                      request);
  });
}
