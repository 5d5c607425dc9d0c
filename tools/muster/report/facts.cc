#include "tools/muster/report/facts.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/report/chart.h"
#include "tools/muster/report/html.h"

namespace muster::cli::report {
namespace {

using Runs = std::vector<RunReport>;

// "2026-03-01T12:30:05Z" as people read it.
std::string readable_time(const std::string& utc) {
  if (utc.size() < 19) return utc;
  std::string text = utc.substr(0, 19);
  std::ranges::replace(text, 'T', ' ');
  return text + " UTC";
}

std::string time_text(double since_1970) {
  const WallTime time{std::chrono::nanoseconds(static_cast<int64_t>(since_1970 * 1e9))};
  return readable_time(utc_timestamp(time));
}

// Cells are HTML.
class Facts {
 public:
  explicit Facts(size_t runs) : runs_(runs) {}
  void add(const std::string& name, std::vector<std::string> cells) {
    const bool any = std::ranges::any_of(cells, [](const auto& cell) { return !cell.empty(); });
    if (!any) return;
    rows_ += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(name));
    for (const auto& cell : cells) rows_ += fmt::format("<td>{}</td>", cell.empty() ? "-" : cell);
    rows_ += "</tr>\n";
  }
  std::string table(const Runs& runs) const {
    std::string head;
    if (runs_ > 1) {
      head = "<thead><tr><th></th>";
      for (size_t i = 0; i < runs.size(); ++i) {
        head += fmt::format("<th scope=\"col\">{}{}</th>", swatch(i), escaped(runs[i].title));
      }
      head += "</tr></thead>";
    }
    return fmt::format(
        "<div class=\"wide\"><table class=\"facts\">{}<tbody>{}</tbody></table>"
        "</div>\n",
        head, rows_);
  }

 private:
  size_t runs_;
  std::string rows_;
};

template <typename Tell>
std::vector<std::string> cells_of(const Runs& runs, Tell tell) {
  std::vector<std::string> cells;
  for (const auto& run : runs) cells.push_back(tell(run));
  return cells;
}

std::string all_lanes(const RunReport& run) {
  if (!run.job || run.job->lanes < 1) return "";
  return run.job->lanes == 1 ? "0" : fmt::format("0-{}", run.job->lanes - 1);
}

double trained_seconds(const History& history) {
  double total = 0;
  for (const auto& attempt : history.attempts) total += attempt.end - attempt.begin;
  return total;
}

std::string text_of(const nlohmann::json& fields, const char* key) {
  const auto at = fields.is_object() ? fields.find(key) : fields.end();
  if (!fields.is_object() || at == fields.end()) return "";
  if (at->is_string()) return at->get<std::string>();
  return at->is_number_integer() ? at->dump() : "";
}

std::string memory_text(const nlohmann::json& fields) {
  if (!fields.is_object()) return "";
  const auto at = fields.find("memory");
  if (at == fields.end() || !at->is_number_unsigned() || at->get<uint64_t>() == 0) return "";
  return human_bytes(static_cast<double>(at->get<uint64_t>()));
}

std::string details_of_job(const RunReport& run, bool named) {
  return fmt::format("<details><summary>job.yaml{}</summary><pre>{}</pre></details>\n",
                     named ? " of " + escaped(run.title) : "", escaped(run.job_text));
}

}  // namespace

History history_in(const RunReport& run) {
  return history_of(run.events, {.times = run.times,
                                 .all_lanes = all_lanes(run),
                                 .running = run.facts.status.state == track::RunState::kRunning});
}

std::string summary_table(const Runs& runs) {
  Facts facts(runs.size());
  std::vector<History> histories;
  for (const auto& run : runs) histories.push_back(history_in(run));
  const auto by_history = [&](auto tell) {
    std::vector<std::string> cells;
    for (const auto& history : histories) {
      cells.push_back(history.attempts.empty() ? std::string() : tell(history));
    }
    return cells;
  };
  facts.add("state", cells_of(runs, [](const RunReport& run) {
              const auto name = track::run_state_name(run.facts.status.state);
              const auto& reason = run.facts.status.reason;
              return fmt::format("<span class=\"state {0}\">{0}</span>{1}", name,
                                 reason.empty() ? "" : ": " + escaped(reason));
            }));
  facts.add("steps", cells_of(runs, [](const RunReport& run) {
              return with_commas(static_cast<uint64_t>(std::max<int64_t>(0, run.facts.steps)));
            }));
  std::vector<std::string> metrics;
  for (const auto& run : runs) {
    for (const auto& [name, value] : run.facts.metrics) {
      if (std::ranges::find(metrics, name) == metrics.end()) metrics.push_back(name);
    }
  }
  for (const auto& metric : metrics) {
    facts.add(metric == "train loss" ? metric : "test " + metric,
              cells_of(runs, [&](const RunReport& run) -> std::string {
                for (const auto& [name, value] : run.facts.metrics) {
                  if (name == metric) return escaped(metric_text(value));
                }
                return "";
              }));
  }
  facts.add("started", cells_of(runs, [](const RunReport& run) {
              return escaped(readable_time(run.facts.status.started));
            }));
  facts.add("time", by_history([](const History& history) {
              return fmt::format("{} in {}", duration_text(trained_seconds(history)),
                                 counted(history.attempts.size(), "attempt"));
            }));
  facts.add("workers",
            by_history([](const History& history) { return with_commas(history.workers.size()); }));
  facts.add("faults",
            by_history([](const History& history) { return with_commas(history.faults); }));
  facts.add("weights", cells_of(runs, [](const RunReport& run) -> std::string {
              if (run.facts.weights_hash.empty()) return "";
              return fmt::format("<span class=\"hash\">{}</span>", escaped(run.facts.weights_hash));
            }));
  facts.add("directory",
            cells_of(runs, [](const RunReport& run) { return escaped(run.facts.path); }));
  return facts.table(runs);
}

std::string job_table(const Runs& runs) {
  // By option, in the table's order, what it is in each run.
  std::map<std::string, std::vector<std::string>> values;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].job) continue;
    for (const auto& difference : config::diff(config::Job{}, *runs[i].job)) {
      auto& cells = values[difference.key];
      cells.resize(runs.size());
      for (size_t other = 0; other < runs.size(); ++other) {
        if (cells[other].empty() && runs[other].job) cells[other] = difference.a;
      }
      cells[i] = difference.b;
    }
  }
  std::string head = "<th scope=\"col\">option</th>";
  for (size_t i = 0; i < runs.size(); ++i) {
    head += runs.size() == 1
                ? "<th scope=\"col\">value</th>"
                : fmt::format("<th scope=\"col\">{}{}</th>", swatch(i), escaped(runs[i].title));
  }
  std::string rows;
  for (const auto& option : config::option_table().options) {
    const auto found = values.find(option.key);
    if (found == values.end()) continue;
    const bool differs = std::set(found->second.begin(), found->second.end()).size() > 1;
    rows += fmt::format("<tr{}><th scope=\"row\">{}</th>", differs ? " class=\"changed\"" : "",
                        escaped(option.key));
    for (const auto& cell : found->second) {
      rows += fmt::format("<td><code>{}</code></td>", escaped(cell.empty() ? "-" : cell));
    }
    rows += "</tr>\n";
  }
  std::string html;
  if (!rows.empty()) {
    html = fmt::format(
        "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>{}</tbody>"
        "</table></div>\n<p class=\"note\">Options that are not at their "
        "default{}.</p>\n",
        head, rows, runs.size() > 1 ? "; bold: they differ" : "");
  }
  for (const auto& run : runs) {
    if (!run.job) {
      html += fmt::format(
          "<p class=\"warn\">{}: job.yaml cannot be read as a job of this "
          "version.</p>\n",
          escaped(run.title));
    }
    html += details_of_job(run, runs.size() > 1);
  }
  return html;
}

std::string environment_table(const Runs& runs) {
  std::string rows;
  for (const auto& run : runs) {
    for (const auto& attempt : history_in(run).attempts) {
      if (!attempt.fields.is_object()) continue;
      const auto cell = [&](const char* key) { return escaped(text_of(attempt.fields, key)); };
      const auto commit = cell("commit");
      rows += fmt::format(
          "<tr>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"num\">{}</td><td "
          "class=\"num\">{}</td><td>{}</td><td>{}{}</td></tr>\n",
          runs.size() > 1 ? "<th scope=\"row\">" + escaped(run.title) + "</th>" : "",
          escaped(time_text(attempt.started)), escaped(attempt.command), cell("host"),
          cell("processor"), cell("cores"), memory_text(attempt.fields), cell("system"),
          cell("version"), commit.empty() ? "" : " (" + commit + ")");
    }
  }
  std::string html;
  if (rows.empty()) {
    html = "<p class=\"empty\">No attempt has recorded where it ran.</p>\n";
  } else {
    html = fmt::format(
        "<div class=\"wide\"><table><thead><tr>{}<th scope=\"col\">began</th><th "
        "scope=\"col\">command</th><th scope=\"col\">host</th><th scope=\"col\">processor</th><th "
        "class=\"num\" scope=\"col\">cores</th><th class=\"num\" scope=\"col\">memory</th><th "
        "scope=\"col\">system</th><th scope=\"col\">Muster</th></tr></thead><tbody>{}</tbody>"
        "</table></div>\n<p class=\"note\">Of the launcher; its workers may be elsewhere.</p>\n",
        runs.size() > 1 ? "<th scope=\"col\">run</th>" : "", rows);
  }
  for (const auto& run : runs) {
    std::string lines;
    for (const auto& [name, hash] : run.facts.fingerprint.parts()) {
      if (!hash->empty()) {
        lines += fmt::format("{} <span class=\"hash\">{}</span> ", escaped(name), escaped(*hash));
      }
    }
    if (!lines.empty()) {
      html += fmt::format("<p class=\"note\">Fingerprint{}: {}</p>\n",
                          runs.size() > 1 ? " of " + escaped(run.title) : "", lines);
    }
  }
  return html;
}

}  // namespace muster::cli::report
