#include "muster/track/metrics.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "muster/base/check.h"

namespace muster::track {
namespace {

using nlohmann::json;

std::optional<json> parse_record(std::string_view line) {
  json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::nullopt;
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return std::nullopt;
  return record;
}

// Without newlines.
void for_each_line(std::string_view text, const std::function<void(std::string_view line)>& visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    visit(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

// Where the last line begins.
size_t last_line(std::string_view text) {
  const size_t newline = text.size() < 2 ? text.npos : text.rfind('\n', text.size() - 2);
  return newline == text.npos ? 0 : newline + 1;
}

bool has_same_fields(const json& a, const json& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a.items()) {
    if (!b.contains(name)) return false;
  }
  return true;
}

// Whether one of its step and with its fields is there. Steps come in order, but for repetitions.
bool is_repeated(const std::vector<json>& records, const json& record) {
  const auto step = record["step"].get<int64_t>();
  for (auto it = records.rbegin(); it != records.rend(); ++it) {
    const auto other = (*it)["step"].get<int64_t>();
    if (other < step) return false;
    if (other == step && has_same_fields(*it, record)) return true;
  }
  return false;
}

constexpr const char* kRollback = "rollback";

// Whether records after a later rollback cover its step.
bool is_replaced(const std::map<uint64_t, int64_t>& begun, const json& record) {
  const auto step = record["step"].get<int64_t>();
  return std::any_of(begun.upper_bound(rollback_of(record)), begun.end(),
                     [&](const auto& later) { return later.second <= step; });
}

// The first record after a rollback replaces all earlier ones of its step and later ones.
void leave_out_replaced(std::vector<json>& records, std::map<uint64_t, int64_t>& begun,
                        const json& record) {
  const uint64_t rollback = rollback_of(record);
  const auto step = record["step"].get<int64_t>();
  const bool first = begun.emplace(rollback, step).second;
  if (!first || rollback == 0) return;
  std::erase_if(records, [&](const json& other) {
    return rollback_of(other) < rollback && other["step"].get<int64_t>() >= step;
  });
}

// Without what follows the last record of a step up to `step`. From the end: steps come in order,
// so after the last line to stay there is nothing to parse.
std::string_view up_to(std::string_view text, int64_t step) {
  while (!text.empty()) {
    const size_t begin = last_line(text);
    const auto record = parse_record(text.substr(begin));
    if (text.back() == '\n' && record && record->at("step").get<int64_t>() <= step) break;
    text = text.substr(0, begin);
  }
  return text;
}

// What tells apart the records of one step.
std::string_view kind_of(const json& record) {
  if (record.contains("test")) return "test";
  return record.contains("links") ? "links" : "step";
}

}  // namespace

uint64_t rollback_of(const json& record) {
  const auto found = record.find(kRollback);
  return found != record.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

void set_rollback(json& record, uint64_t number) {
  if (number != 0) {
    record[kRollback] = number;
  } else {
    record.erase(kRollback);
  }
}

void erase_times(json& record) {
  for (const char* const key : {"seconds", "time", "waited"}) record.erase(key);
}

Result<MetricsWriter> MetricsWriter::open(FileSystem& fs, const std::string& path) {
  bool torn = false;
  if (fs.exists(path)) {
    MUSTER_TRY(const std::string end, fs.read_end(path, 1));
    torn = !end.empty() && end != "\n";
  }
  MUSTER_TRY(auto file, fs.open_to_append(path));
  if (torn) MUSTER_RETURN_IF_ERROR(file->append("\n"));
  return MetricsWriter(fs, path, std::move(file));
}

Status MetricsWriter::write(const json& record) {
  MUSTER_CHECK(record.is_object() && record.contains("step") && record["step"].is_number_integer(),
               "a record has a step");
  // One append, so that a line is never half another's.
  return file_->append(record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

Status MetricsWriter::truncate_after(int64_t step) {
  MUSTER_TRY(const std::string text, fs_->read(path_));
  const std::string_view kept = up_to(text, step);
  if (kept.size() == text.size()) return {};
  MUSTER_RETURN_IF_ERROR(write_file_atomically(*fs_, path_, kept));
  MUSTER_TRY(file_, fs_->open_to_append(path_));  // the old one is no longer at this name
  return {};
}

std::string continue_metrics(std::string_view before, std::string_view more, int64_t step,
                             uint64_t rollback, int64_t rollback_step) {
  std::string result(up_to(before, step));
  int64_t newest = -1;
  std::set<std::string_view> kinds;  // of the records of that step
  const auto take = [&](const json& record) {
    const auto of = record["step"].get<int64_t>();
    const bool is_void = rollback_of(record) < rollback && of > rollback_step;
    if (is_void || of < newest) return false;
    if (of > newest) kinds.clear();
    newest = of;
    return kinds.insert(kind_of(record)).second;
  };
  // The last lines are enough: there are all kinds of the newest step.
  constexpr size_t kEnd = 256 << 10;
  std::string_view end = result;
  if (end.size() > kEnd) {
    end.remove_prefix(end.size() - kEnd);
    end.remove_prefix(std::min(end.find('\n'), end.size() - 1) + 1);
  }
  for_each_line(end, [&](std::string_view line) {
    if (const auto record = parse_record(line)) (void)take(*record);
  });
  for_each_line(more, [&](std::string_view line) {
    const auto record = parse_record(line);
    if (record && take(*record)) result.append(line).append("\n");
  });
  return result;
}

Result<Metrics> read_metrics(FileSystem& fs, const std::string& path, size_t most) {
  Metrics metrics;
  if (!fs.exists(path)) return metrics;
  MUSTER_TRY(const std::string text, fs.read_end(path, most));
  std::string_view lines = text;
  // It may begin in the middle of a line.
  if (text.size() == most) lines.remove_prefix(std::min(text.find('\n'), most - 1) + 1);
  std::map<uint64_t, int64_t> begun;  // by rollback, where its records begin
  for_each_line(lines, [&](std::string_view line) {
    auto record = parse_record(line);
    if (!record) {
      ++metrics.skipped;
    } else if (!is_replaced(begun, *record)) {
      leave_out_replaced(metrics.records, begun, *record);
      if (!is_repeated(metrics.records, *record)) metrics.records.push_back(*std::move(record));
    }
  });
  return metrics;
}

}  // namespace muster::track
