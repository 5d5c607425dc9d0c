#include "tools/muster/report/run_report.h"

#include <algorithm>
#include <array>
#include <map>

#include "muster/base/stable_sort.h"
#include "muster/base/text.h"
#include "muster/track/visit_metrics.h"

#include "tools/muster/find_run.h"

namespace muster::cli::report {
namespace {

using nlohmann::json;

constexpr size_t kMostOfALog = 512 << 10;  // bytes, from its end
constexpr size_t kMostLogs = 256;          // of workers
constexpr size_t kMostWarnings = 100;

// "2026-03-01T12:30:05.123Z warning text"; nothing: it is none of the log's own lines.
std::optional<std::pair<std::string, LogLine>> parse_line(const std::string& file,
                                                          const std::string& line) {
  constexpr size_t kTime = 24;  // "2026-03-01T12:30:05.123Z"
  constexpr size_t kLevel = 7;  // padded
  if (line.size() <= kTime + kLevel + 2 || line[4] != '-' || line[kTime - 1] != 'Z' ||
      line[kTime] != ' ') {
    return std::nullopt;
  }
  const auto level = std::string(trim(std::string_view(line).substr(kTime + 1, kLevel)));
  return std::pair(level, LogLine{file, line.substr(0, kTime), line.substr(kTime + kLevel + 2)});
}

// "data.train", "data.test" or "store of the data" of a line with figures of what was fetched.
std::string data_key(std::string_view text) {
  constexpr std::array<std::string_view, 3> kKeys = {"data.train", "data.test",
                                                     "store of the data"};
  for (const auto key : kKeys) {
    const bool figures =
        text.find(" fetched, ") != text.npos || text.find(" repeated, ") != text.npos;
    if (text.starts_with(key) && text.substr(key.size()).starts_with(": ") && figures) {
      return std::string(key);
    }
  }
  return "";
}

bool is_about_audits(std::string_view text) {
  for (const std::string_view words :
       {"audit", "states of the workers differ", "computed different gradients",
        "return to the newest checkpoint"}) {
    if (text.find(words) != text.npos) return true;
  }
  return false;
}

void read_log(const std::string& directory, const std::string& file, FileSystem& files,
              RunReport& report) {
  const std::string path = directory + "/" + file;
  if (!files.exists(path)) return;
  const auto text = files.read_end(path, kMostOfALog);
  if (!text.ok()) return;
  std::map<std::string, LogLine> figures;  // the last ones: they count from the start
  for (const auto& line : split(*text, '\n')) {
    auto parsed = parse_line(file, line);
    if (!parsed) continue;
    auto& [level, entry] = *parsed;
    if (const auto key = data_key(entry.text); !key.empty()) {
      figures[key] = std::move(entry);
    } else if (level != "warning" && level != "error") {
      continue;
    } else if (entry.text.starts_with("waiting for data")) {
      report.data_waits.push_back(std::move(entry));
    } else if (is_about_audits(entry.text)) {
      report.audit_lines.push_back(std::move(entry));
    } else {
      report.warnings.push_back(std::move(entry));
    }
  }
  for (auto& [key, line] : figures) report.data_lines.push_back(std::move(line));
}

void read_logs(const track::RunDirectory& run, FileSystem& files, RunReport& report) {
  read_log(run.path(), "log.txt", files, report);
  if (files.exists(run.worker_logs())) {
    auto names = files.list(run.worker_logs());
    if (names.ok()) {
      std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".log"); });
      std::ranges::sort(*names);
      if (names->size() > kMostLogs) names->resize(kMostLogs);
      for (const auto& name : *names) read_log(run.path(), "workers/" + name, files, report);
    }
  }
  // The recorder's warnings are in a log of its own and in log.txt.
  sort_stable(report.warnings, {}, &LogLine::time);
  const auto same = [](const LogLine& a, const LogLine& b) {
    return a.text == b.text && a.time.substr(0, 19) == b.time.substr(0, 19);
  };
  report.warnings.erase(std::unique(report.warnings.begin(), report.warnings.end(), same),
                        report.warnings.end());
  if (report.warnings.size() > kMostWarnings) {
    report.warnings_left_out = report.warnings.size() - kMostWarnings;
    report.warnings.erase(report.warnings.begin(),
                          report.warnings.end() - static_cast<ptrdiff_t>(kMostWarnings));
  }
}

void read_metrics_of(const track::RunDirectory& run, FileSystem& files, RunReport& report) {
  track::CurveCollector collector;
  track::MetricsVisitor visitor;
  visitor.drop = [&](int64_t step, uint64_t rollback) { collector.drop(step, rollback); };
  visitor.take = [&](const json& record) {
    collector.take(record);
    report.rollbacks = std::max(report.rollbacks, track::rollback_of(record));
    if (const auto time = record.find("time"); time != record.end() && time->is_number()) {
      const double seconds = time->get<double>();
      if (track::is_plausible_time(seconds)) report.times.push_back(seconds);
    }
  };
  const auto skipped = track::visit_metrics(files, run.metrics_file(), visitor);
  if (!skipped.ok()) return;
  report.curves = collector.curves();
  report.lines_skipped = *skipped;
  std::ranges::sort(report.times);
}

const track::Curve* find_curve(const std::vector<track::Curve>& curves, std::string_view metric) {
  const auto at = std::ranges::find(curves, metric, &track::Curve::metric);
  return at == curves.end() ? nullptr : &*at;
}

}  // namespace

std::optional<StepTimes> times_of(const std::vector<track::Curve>& curves) {
  const auto* times = find_curve(curves, "seconds");
  if (times == nullptr) return std::nullopt;
  StepTimes result;
  std::vector<double> sorted;
  std::vector<int64_t> known;
  for (const auto& point : times->points) {
    if (point.value <= 0) continue;  // of one that was recorded by another worker: not known
    sorted.push_back(point.value);
    known.push_back(point.step);
    result.total += point.value;
    if (point.value > result.longest) {
      result.longest = point.value;
      result.longest_step = point.step;
    }
  }
  if (sorted.empty()) return std::nullopt;
  std::ranges::sort(sorted);
  result.count = sorted.size();
  result.median = sorted[(sorted.size() - 1) / 2];
  result.ninety = sorted[(sorted.size() * 9 - 1) / 10];
  if (const auto* waited = find_curve(curves, "waited")) {
    result.waited = 0;
    for (const auto& point : waited->points) {
      if (std::ranges::binary_search(known, point.step)) *result.waited += point.value;
    }
  }
  return result;
}

RunReport read_run(const track::RunDirectory& run, FileSystem& files) {
  RunReport report;
  report.facts = gather_facts(run, files);
  report.title = report.facts.name;
  auto job = load_run_job(run, {}, {}, "", files);
  if (job.ok()) report.job = std::move(job).value();
  if (auto text = files.read(run.job_file()); text.ok()) report.job_text = *std::move(text);
  read_metrics_of(run, files, report);
  report.step_times = times_of(report.curves);
  if (auto events = track::read_run_events(files, run.events_file()); events.ok()) {
    report.events = std::move(events).value();
  }
  read_logs(run, files, report);
  return report;
}

}  // namespace muster::cli::report
