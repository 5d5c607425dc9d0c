#include "muster/track/metrics.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "muster/base/check.h"
#include "muster/track/visit_metrics.h"

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

constexpr const char* kRollback = "rollback";

// Which records are wanted, of those that come one after the other.
class RecordFilter {
 public:
  // False: it repeats another, or a rollback has replaced it.
  bool wants(const json& record, const MetricsVisitor& visitor) {
    const Seen seen{record["step"].get<int64_t>(), rollback_of(record), fields_of(record)};
    if (is_replaced(seen)) return false;
    leave_out_replaced(seen, visitor);
    if (is_repeated(seen)) return false;
    seen_.push_back(seen);
    return true;
  }

 private:
  struct Seen {
    int64_t step;
    uint64_t rollback;
    size_t fields;
  };

  // A number for the names of its fields, equal if they are.
  size_t fields_of(const json& record) {
    std::string names;
    for (const auto& [name, value] : record.items()) names.append(name).push_back('\0');
    return fields_.emplace(std::move(names), fields_.size()).first->second;
  }

  // Whether one of its step and with its fields is there. Steps come in order, but for repetitions.
  bool is_repeated(const Seen& record) const {
    for (auto it = seen_.rbegin(); it != seen_.rend(); ++it) {
      if (it->step < record.step) return false;
      if (it->step == record.step && it->fields == record.fields) return true;
    }
    return false;
  }

  // Whether records after a later rollback cover its step.
  bool is_replaced(const Seen& record) const {
    return std::any_of(begun_.upper_bound(record.rollback), begun_.end(),
                       [&](const auto& later) { return later.second <= record.step; });
  }

  // The first record after a rollback replaces all earlier ones of its step and later ones.
  void leave_out_replaced(const Seen& record, const MetricsVisitor& visitor) {
    const bool first = begun_.emplace(record.rollback, record.step).second;
    if (!first || record.rollback == 0) return;
    std::erase_if(seen_, [&](const Seen& other) {
      return other.rollback < record.rollback && other.step >= record.step;
    });
    visitor.drop(record.step, record.rollback);
  }

  std::vector<Seen> seen_;
  std::map<std::string, size_t> fields_;
  std::map<uint64_t, int64_t> begun_;  // by rollback, where its records begin
};

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
  MetricsVisitor visitor;
  visitor.take = [&](json record) { metrics.records.push_back(std::move(record)); };
  visitor.drop = [&](int64_t step, uint64_t rollback) {
    std::erase_if(metrics.records, [&](const json& other) {
      return rollback_of(other) < rollback && other["step"].get<int64_t>() >= step;
    });
  };
  MUSTER_TRY(metrics.skipped, visit_metrics(fs, path, visitor, most));
  return metrics;
}

Result<int64_t> visit_metrics(FileSystem& fs, const std::string& path,
                              const MetricsVisitor& visitor, size_t most) {
  int64_t skipped = 0;
  if (!fs.exists(path)) return skipped;
  MUSTER_TRY(const std::string text, fs.read_end(path, most));
  std::string_view lines = text;
  // It may begin in the middle of a line.
  if (text.size() == most) lines.remove_prefix(std::min(text.find('\n'), most - 1) + 1);
  RecordFilter filter;
  for_each_line(lines, [&](std::string_view line) {
    auto record = parse_record(line);
    if (!record) {
      ++skipped;
    } else if (filter.wants(*record, visitor)) {
      visitor.take(*std::move(record));
    }
  });
  return skipped;
}

}  // namespace muster::track
