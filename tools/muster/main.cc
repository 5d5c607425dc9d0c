// muster: checks jobs, starts workers, shows runs. See README.md in this folder.
#include <variant>

#include "tools/muster/program.h"

int main(int argc, char** argv) {
  using namespace muster::cli;  // NOLINT(google-build-using-namespace): run() is overloaded there
  return run_program(argc, argv, [](const Request& request, Context& context) {
    return std::visit([&](const auto& arguments) { return run(arguments, context); }, request);
  });
}
