#include "tools/muster/report/page.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "muster/base/text.h"

#include "tools/muster/report/chart.h"
#include "tools/muster/report/facts.h"
#include "tools/muster/report/html.h"
#include "tools/muster/report/timeline.h"
#include "tools/muster/version.h"

namespace muster::cli::report {
namespace {

constexpr size_t kMostLines = 20;  // of a log, in one list

using Runs = std::vector<RunReport>;

std::string section(const std::string& id, const std::string& title, const std::string& inside) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n{2}"
      "</section>\n",
      id, title, inside);
}

// For each run what `tell` says of it, below its title if there are several.
std::string for_each_run(const Runs& runs,
                         const std::function<std::string(const RunReport&)>& tell) {
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > 1) html += fmt::format("<h3>{}{}</h3>\n", swatch(i), escaped(runs[i].title));
    html += tell(runs[i]);
  }
  return html;
}

const track::Curve* find_curve(const RunReport& run, const std::string& metric) {
  const auto at = std::ranges::find(run.curves, metric, &track::Curve::metric);
  return at == run.curves.end() ? nullptr : &*at;
}

std::vector<std::string> metrics_of(const Runs& runs, bool of_time) {
  std::vector<std::string> steps, tests;
  for (const auto& run : runs) {
    for (const auto& curve : run.curves) {
      const bool is_time = curve.metric == "seconds" || curve.metric == "waited";
      auto& names = curve.metric.starts_with("test/") ? tests : steps;
      const bool known = std::ranges::find(names, curve.metric) != names.end();
      if (is_time == of_time && !known) names.push_back(curve.metric);
    }
  }
  // The loss, what evaluations say, and then what only some people look at.
  const auto after_loss = steps.begin() + (!steps.empty() && steps.front() == "loss" ? 1 : 0);
  steps.insert(after_loss, tests.begin(), tests.end());
  return steps;
}

std::string charts(const Runs& runs, bool of_time) {
  std::string html;
  for (const auto& metric : metrics_of(runs, of_time)) {
    std::vector<ChartCurve> curves;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (const auto* curve = find_curve(runs[i], metric)) {
        curves.push_back({runs[i].title, i, curve});
      }
    }
    html += chart(metric, curves);
  }
  return html.empty() ? "" : fmt::format("<div class=\"charts\">\n{}</div>\n", html);
}

std::string curves_section(const Runs& runs) {
  std::string html = charts(runs, false);
  if (html.empty()) {
    html = "<p class=\"empty\">Nothing has been recorded yet: no step of these runs is done.</p>";
  } else {
    html +=
        "<p class=\"note\">By step. Where there are many points, the thin line has all peaks, "
        "and the thick one is a mean of neighbours.</p>";
  }
  for (const auto& run : runs) {
    if (run.lines_skipped == 0) continue;
    html += fmt::format(
        "<p class=\"note\">{}: {} of the metrics cannot be read and {} left "
        "out.</p>",
        escaped(run.title), counted(static_cast<uint64_t>(run.lines_skipped), "line"),
        run.lines_skipped == 1 ? "is" : "are");
  }
  return section("curves", "Curves", html);
}

std::string times_section(const Runs& runs) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& times = runs[i].step_times;
    if (!times) continue;
    const double share =
        times->waited && times->total > 0 ? 100 * *times->waited / times->total : 0;
    std::string speed = "-";
    if (runs[i].job && times->median > 0) {
      speed = fmt::format("{:.4g}", static_cast<double>(runs[i].job->batch) / times->median);
    }
    rows += fmt::format(
        "<tr><th scope=\"row\">{}{}</th><td class=\"num\">{}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{} <span class=\"at\">step&nbsp;{}</span></td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
        swatch(i), escaped(runs[i].title), duration_text(times->median),
        duration_text(times->ninety), duration_text(times->longest),
        with_commas(static_cast<uint64_t>(std::max<int64_t>(0, times->longest_step))),
        times->waited ? fmt::format("{:.1f} %", share) : "-", speed, with_commas(times->count));
  }
  if (rows.empty()) {
    return section("times", "Step times", "<p class=\"empty\">No step times are recorded.</p>");
  }
  return section(
      "times", "Step times",
      charts(runs, true) +
          fmt::format(
              "<div class=\"wide\"><table><thead><tr><th scope=\"col\">run</th><th class=\"num\" "
              "scope=\"col\">median</th><th class=\"num\" scope=\"col\">9 of 10 within</th><th "
              "class=\"num\" scope=\"col\">longest</th><th class=\"num\" scope=\"col\">waiting for "
              "others</th><th class=\"num\" scope=\"col\">samples per second</th><th class=\"num\" "
              "scope=\"col\">steps measured</th></tr></thead><tbody>{}</tbody></table></div>\n<p "
              "class=\"note\">Of the steps that are recorded (track.every), by the worker that "
              "records. Samples per second: the batch divided by the median.</p>",
              rows));
}

constexpr std::string_view kLegend =
    "<p class=\"legend\" aria-hidden=\"true\"><span><svg class=\"track\" viewBox=\"0 0 16 16\">"
    "<rect class=\"busy\" y=\"2\" width=\"16\" height=\"12\" fill-opacity=\".6\"/></svg>computes "
    "lanes, the stronger the more</span><span><svg class=\"track\" viewBox=\"0 0 16 16\"><rect "
    "class=\"idle\" x=\"1\" y=\"2\" width=\"14\" height=\"12\"/></svg>member without lanes, or "
    "waiting</span><span><svg viewBox=\"-8 -8 16 16\"><g class=\"mark fault\"><path d=\"M-5 -5L5 "
    "5M5 -5L-5 5\"/></g></svg>fault</span><span><svg viewBox=\"-8 -8 16 16\"><g class=\"mark "
    "planned\"><circle r=\"4\"/></g></svg>planned</span></p>\n";

std::string workers_section(const Runs& runs) {
  return section("workers", "Workers over time", for_each_run(runs, [](const RunReport& run) {
                   const auto history = history_in(run);
                   if (run.events.empty()) {
                     return std::string(
                         "<p class=\"empty\">No events are recorded: the undisturbed run of "
                         "<code>muster verify</code> and runs of earlier versions of Muster have "
                         "none.</p>");
                   }
                   std::string text = fmt::format(
                       "<p>{}, {}, {}{}.</p>\n", counted(history.attempts.size(), "attempt"),
                       history.rosters > 0 ? counted(history.rosters, "roster")
                                           : "one worker without a coordinator",
                       counted(history.faults, "fault"),
                       history.servers.empty()
                           ? ""
                           : fmt::format(", {} of parameter servers",
                                         counted(history.servers.size(), "event")));
                   return text + timeline(history) + std::string(kLegend) + fault_list(history) +
                          event_table(run.events);
                 }));
}

std::string log_list(const std::vector<LogLine>& lines) {
  std::string items;
  const size_t first = lines.size() - std::min(lines.size(), kMostLines);
  for (size_t i = first; i < lines.size(); ++i) {
    items += fmt::format("<li>{} <span class=\"soft\">{}, {}</span></li>\n", escaped(lines[i].text),
                         escaped(lines[i].file), escaped(lines[i].time.substr(0, 19)));
  }
  std::string html = fmt::format("<ul class=\"log\">{}</ul>\n", items);
  if (first > 0) html += fmt::format("<p class=\"note\">{} earlier lines are left out.</p>", first);
  return html;
}

std::string audit_text(const RunReport& run) {
  const auto history = history_in(run);
  std::string html;
  size_t faulty = 0;
  for (const auto& event : run.events) {
    if (event.kind == "gone" && event.cause == "faulty") ++faulty;
  }
  if (run.events.empty() && run.audit_lines.empty() && run.rollbacks == 0) {
    return "<p class=\"empty\">Nothing is recorded.</p>";
  }
  if (history.rosters == 0 && !run.events.empty()) {
    html = "<p>One worker alone has nothing to compare with.</p>";
  } else if (run.job) {
    const auto& audit = run.job->audit;
    html = fmt::format(
        "<p>{} {}</p>",
        audit.every == 0 ? "States are compared only at the end and after recoveries."
                         : fmt::format("All of the state is compared within {}.",
                                       counted(static_cast<uint64_t>(audit.every), "step")),
        audit.lanes == 0 ? "No lanes are computed twice."
                         : fmt::format("About one lane in {} is computed twice.", audit.lanes));
  }
  if (faulty == 0 && run.rollbacks == 0 && run.audit_lines.empty()) {
    return html + (history.rosters > 0 ? "<p>No difference was found.</p>" : "");
  }
  if (faulty > 0 || run.rollbacks > 0) {
    html += fmt::format("<p class=\"warn\">{} removed as faulty, {}.</p>",
                        counted(faulty, "worker"), counted(run.rollbacks, "rollback"));
  }
  return html + log_list(run.audit_lines);
}

std::string data_text(const RunReport& run) {
  std::string html;
  if (!run.data_lines.empty()) html += log_list(run.data_lines);
  if (run.facts.damaged_blocks > 0) {
    html += fmt::format("<p class=\"warn\">{} damaged; {} replaced.</p>",
                        counted(run.facts.damaged_blocks, "block"),
                        counted(run.facts.replaced_samples, "sample"));
  }
  if (run.data_waits.empty()) {
    html += "<p>No step waited for data for ten seconds or longer.</p>";
  } else {
    html += fmt::format("<p class=\"warn\">{} that a step waited for data:</p>",
                        counted(run.data_waits.size(), "warning")) +
            log_list(run.data_waits);
  }
  if (run.data_lines.empty()) {
    html +=
        "<p class=\"note\">What was fetched is only counted for data that is read by blocks."
        "</p>";
  }
  return html;
}

std::string warnings_section(const Runs& runs) {
  const bool any = std::ranges::any_of(runs, [](const auto& run) { return !run.warnings.empty(); });
  if (!any) return "";
  return section("warnings", "Warnings and errors", for_each_run(runs, [](const RunReport& run) {
                   if (run.warnings.empty()) return std::string("<p class=\"empty\">None.</p>");
                   std::string html = log_list(run.warnings);
                   if (run.warnings_left_out > 0) {
                     html += fmt::format("<p class=\"note\">{} earlier ones are not read.</p>",
                                         run.warnings_left_out);
                   }
                   return html;
                 }));
}

std::string title_of(const Runs& runs) {
  if (runs.size() == 1) return runs.front().title;
  std::string title = fmt::format("{} runs: ", runs.size());
  for (size_t i = 0; i < std::min<size_t>(3, runs.size()); ++i) {
    title += (i > 0 ? ", " : "") + runs[i].title;
  }
  return runs.size() > 3 ? title + ", ..." : title;
}

}  // namespace

std::string page(const Runs& runs, const std::string& made) {
  const std::string title = escaped(title_of(runs));
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{}\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{} - Muster</title>\n<style>{}</style>\n</head>\n<body>\n",
      kGenerator, title, kStyle);
  html += fmt::format(
      "<header><h1>{}</h1><p class=\"soft\">Report of Muster {}, made {}</p></header>\n<main>\n",
      title, escaped(kVersion), escaped(made));
  html += section("summary", "Summary", summary_table(runs));
  html += curves_section(runs);
  html += times_section(runs);
  html += workers_section(runs);
  html += section("audit", "Audit", for_each_run(runs, audit_text));
  html += section("data", "Data", for_each_run(runs, data_text));
  html += warnings_section(runs);
  html += section("job", "Job", job_table(runs));
  html += section("environment", "Environment", environment_table(runs));
  return html +
         "</main>\n<footer>One file, without scripts; it loads nothing.</footer>\n</body>\n"
         "</html>\n";
}

}  // namespace muster::cli::report
