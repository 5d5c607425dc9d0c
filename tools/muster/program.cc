#include "tools/muster/program.h"

#include <exception>

#include "tools/muster/command_line.h"

namespace muster::cli {
namespace {

int tell(const Error& error, bool json, Console& console) {
  console.error(error.kind(), error.message(), json);
  return static_cast<int>(error.kind());
}

int run_command(const std::vector<std::string>& words,
                const std::function<Outcome(const Request&, Context&)>& carry_out,
                Console& console) {
  const bool json = wants_json(words);
  auto request = parse_command_line(words);
  if (!request.ok()) return tell(request.error(), json, console);
  const auto files = posix_file_system();
  const SystemClock clock;
  Context context{console, *files, clock, words};
  const auto code = carry_out(*request, context);
  if (!code.ok()) return tell(code.error(), json, console);
  if (const auto written = console.flush(); !written.ok()) {
    return tell(written.error(), false, console);
  }
  return *code;
}

}  // namespace

int run_program(int argc, char** argv,
                const std::function<Outcome(const Request&, Context&)>& carry_out) {
  auto console = Console::of_process();
  try {
    return run_command({argv + 1, argv + argc}, carry_out, console);
  } catch (const std::exception& exception) {
    // Our own code returns errors; this is a library's surprise (out of memory, say).
    return tell(Error(ErrorKind::kInternal, "{}; this is a bug in Muster, please report it",
                      exception.what()),
                false, console);
  }
}

}  // namespace muster::cli
