#include <unistd.h>

#include <optional>
#include <thread>

#include "muster/base/text.h"
#include "muster/ps/net/fetch_map.h"
#include "muster/roster/coordinator.h"

#include "tools/muster-launch/coordinator_file.h"
#include "tools/muster-launch/launch_commands.h"
#include "tools/muster-launch/status_text.h"

namespace muster::cli {
namespace {

using namespace std::chrono_literals;

// Nothing if the job has none, or if their registry does not answer.
std::optional<ps::ServersStatus> servers_of(const roster::StatusReport& report) {
  if (report.servers.empty()) return std::nullopt;
  auto status = ps::fetch_servers_status(report.servers, 2s);
  if (!status.ok()) return std::nullopt;
  return *std::move(status);
}

std::string shown(const roster::StatusReport& report, const std::string& address, Format format,
                  bool watch, const Console& console) {
  const auto servers = servers_of(report);
  if (format == Format::kJson) {
    return status_json(report, address, servers).dump(watch ? -1 : 2) + "\n";
  }
  return status_text(report, address, servers, console);
}

// The text over what was there before, without a flicker.
std::string over_screen(const std::string& text) {
  std::string screen = "\033[H";
  for (const auto& line : split(text, '\n')) screen += line + "\033[K\n";
  return screen + "\033[J";
}

}  // namespace

Outcome show_status(const StatusArguments& arguments, Context& context) {
  auto& console = context.console;
  MUSTER_TRY(const auto address, find_coordinator(arguments.run, context.files));
  const bool screen =
      arguments.watch && arguments.format == Format::kTable && isatty(STDOUT_FILENO) == 1;
  if (screen) console.out("\033[2J");
  for (bool first = true;; first = false) {
    const auto report = roster::fetch_status(address, 2s);
    if (!report.ok()) {
      if (first) return report.error();
      console.note("the coordinator is gone");
      return 0;
    }
    const auto text = shown(*report, address, arguments.format, arguments.watch, console);
    if (screen) {
      console.out(over_screen(text));
    } else {
      const bool apart = !first && arguments.format == Format::kTable;
      console.out((apart ? "\n" : "") + text);
    }
    MUSTER_RETURN_IF_ERROR(console.flush());
    if (!arguments.watch) return 0;
    std::this_thread::sleep_for(1s);
  }
}

}  // namespace muster::cli
