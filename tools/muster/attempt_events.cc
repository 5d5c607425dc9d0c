#include "tools/muster/attempt_events.h"

#include <sys/utsname.h>

#include <string>
#include <utility>

#include "tools/muster/machine.h"
#include "tools/muster/version.h"

namespace muster::cli {

std::unique_ptr<track::RunEventLog> open_events(const track::RunDirectory& run, Context& context) {
  auto opened = track::RunEventLog::open(context.files, run.events_file(), context.clock);
  if (opened.ok()) return std::move(opened).value();
  context.console.warning(
      fmt::format("{}; reports will not show this attempt's workers", opened.error().message()));
  return track::RunEventLog::discard(context.clock);
}

nlohmann::ordered_json start_event(std::string_view command, int64_t workers) {
  const Machine machine = look_at_machine();
  utsname system{};
  (void)uname(&system);
  return {{"event", "start"},
          {"command", command},
          {"workers", workers},
          {"host", system.nodename},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"processor", machine.processor},
          {"cores", machine.usable_cores},
          {"memory", machine.memory},
          {"version", kVersion},
          {"commit", kCommit}};
}

nlohmann::ordered_json end_event(bool finished, int stopped_by, std::string_view reason) {
  nlohmann::ordered_json event = {{"event", "end"}, {"finished", finished}};
  if (stopped_by != 0) event["stopped_by"] = stopped_by;
  if (!reason.empty()) event["reason"] = reason;
  return event;
}

}  // namespace muster::cli
