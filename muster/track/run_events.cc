#include "muster/track/run_events.h"

#include <optional>
#include <string_view>
#include <utility>

#include "muster/base/text.h"

namespace muster::track {
namespace {

using nlohmann::json;

std::string text_in(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

int64_t number_in(const json& object, const char* key, int64_t otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? at->get<int64_t>() : otherwise;
}

bool flag_in(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}

void read_roster(const json& object, RunEvent& event) {
  event.step = number_in(object, "step", -1);
  event.roster = number_in(object, "roster", 0);
  event.waiting = flag_in(object, "waiting");
  event.all = flag_in(object, "all");
  if (const auto removed = object.find("removed"); removed != object.end() && removed->is_array()) {
    for (const auto& id : *removed) {
      if (id.is_string()) event.removed.push_back(id.get<std::string>());
    }
  }
  const auto changed = object.find("members");
  if (changed == object.end() || !changed->is_object()) return;
  for (const auto& [id, member] : changed->items()) {
    if (member.is_object()) event.members[id] = {text_in(member, "lanes"), text_in(member, "host")};
  }
}

std::string text_of(const json& object) {
  for (const char* key : {"reason", "how", "text"}) {
    if (auto text = text_in(object, key); !text.empty()) return text;
  }
  return "";
}

std::optional<RunEvent> parse_event(std::string_view line) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto time = object.find("time");
  RunEvent event;
  event.kind = text_in(object, "event");
  if (event.kind.empty() || time == object.end() || !time->is_number()) return std::nullopt;
  event.time = time->get<double>();
  if (!is_plausible_time(event.time)) return std::nullopt;
  event.worker = text_in(object, "worker");
  event.cause = text_in(object, "cause");
  event.text = text_of(object);
  if (event.kind == "roster") read_roster(object, event);
  if (event.kind == "start" || event.kind == "end") event.fields = object;
  return event;
}

}  // namespace

Result<std::unique_ptr<RunEventLog>> RunEventLog::open(FileSystem& files, const std::string& path,
                                                       const Clock& clock) {
  bool torn = false;
  if (files.exists(path)) {
    MUSTER_TRY(const std::string end, files.read_end(path, 1));
    torn = !end.empty() && end != "\n";
  }
  MUSTER_TRY(auto file, files.open_to_append(path));
  if (torn) MUSTER_RETURN_IF_ERROR(file->append("\n"));
  return std::unique_ptr<RunEventLog>(new RunEventLog(std::move(file), clock));
}

std::unique_ptr<RunEventLog> RunEventLog::discard(const Clock& clock) {
  return std::unique_ptr<RunEventLog>(new RunEventLog(nullptr, clock));
}

void RunEventLog::write(const nlohmann::ordered_json& event) {
  nlohmann::ordered_json line = {{"time", seconds(clock_.wall().time_since_epoch())}};
  line.update(event);
  const auto text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  // Of a line that failed some bytes may be there.
  torn_ = !file_->append(torn_ ? "\n" + text : text).ok();
}

void RunEventLog::write_last(const nlohmann::ordered_json& event) {
  write(event);
  const std::lock_guard lock(mutex_);
  if (file_ != nullptr) (void)file_->close();
  file_.reset();
}

bool is_plausible_time(double seconds) {
  constexpr double kYear2200 = 7'258'118'400;
  return seconds >= 0 && seconds < kYear2200;
}

Result<std::vector<RunEvent>> read_run_events(FileSystem& files, const std::string& path) {
  std::vector<RunEvent> events;
  if (!files.exists(path)) return events;
  MUSTER_TRY(const std::string text, files.read(path));
  for (const auto& line : split(text, '\n')) {
    if (auto event = parse_event(line)) events.push_back(*std::move(event));
  }
  return events;
}

void apply_roster(const RunEvent& event, std::map<std::string, RunEvent::Member>& members) {
  if (event.all) members.clear();
  for (const auto& id : event.removed) members.erase(id);
  for (const auto& [id, member] : event.members) members[id] = member;
}

}  // namespace muster::track
