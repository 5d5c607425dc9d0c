// muster: checks jobs, starts workers, shows runs. See README.md in this folder.
#include <exception>

#include "tools/muster/command_line.h"
#include "tools/muster/commands.h"

namespace {

using muster::Error;
using muster::ErrorKind;

int tell(const Error& error, bool json, muster::cli::Console& console) {
  console.error(error.kind(), error.message(), json);
  return static_cast<int>(error.kind());
}

int run_command(const std::vector<std::string>& words, muster::cli::Console& console) {
  using namespace muster::cli;  // NOLINT(google-build-using-namespace): run() is overloaded there
  const bool json = wants_json(words);
  auto request = parse_command_line(words);
  if (!request.ok()) return tell(request.error(), json, console);
  const auto files = muster::posix_file_system();
  const muster::SystemClock clock;
  Context context{console, *files, clock};
  const auto code =
      std::visit([&](const auto& arguments) { return run(arguments, context); }, *request);
  if (!code.ok()) return tell(code.error(), json, console);
  if (const auto written = console.flush(); !written.ok()) {
    return tell(written.error(), false, console);
  }
  return *code;
}

}  // namespace

int main(int argc, char** argv) {
  auto console = muster::cli::Console::of_process();
  try {
    return run_command({argv + 1, argv + argc}, console);
  } catch (const std::exception& exception) {
    // Our own code returns errors; this is a library's surprise (out of memory, say).
    return tell(Error(ErrorKind::kInternal, "{}; this is a bug in Muster, please report it",
                      exception.what()),
                false, console);
  }
}
