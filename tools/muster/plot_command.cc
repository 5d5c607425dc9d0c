// runs plot: curves of metrics in the terminal.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/track/curves.h"

#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/terminal_plot.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunCurves {
  std::string name;
  std::string path;
  std::vector<track::Curve> curves;
};

// Runs of one name, in several places, are told apart by their paths.
void name_apart(std::vector<RunCurves>& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run.name);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (std::ranges::count(names, names[i]) > 1) runs[i].name = runs[i].path;
  }
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string> metrics_of(const std::vector<RunCurves>& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs) {
    for (const auto& curve : run.curves) {
      if (!has(names, curve.metric)) names.push_back(curve.metric);
    }
  }
  return names;
}

// "accuracy" is "test/accuracy", unless the steps have one.
Result<std::vector<std::string>> chosen(const std::vector<std::string>& wanted,
                                        const std::vector<std::string>& known) {
  std::vector<std::string> metrics;
  if (wanted.empty()) {
    for (const auto& name : known) {
      if (name == "loss" || name.starts_with("test/")) metrics.push_back(name);
    }
    return metrics;
  }
  for (const auto& name : wanted) {
    const std::string test = "test/" + name;
    if (!has(known, name) && !has(known, test)) {
      const std::string near = did_you_mean(name, known);
      return Error(ErrorKind::kUsage, "--metric: there is no metric '{}'{}", name,
                   near.empty() ? "; there are: " + join_words(known) : near);
    }
    metrics.push_back(has(known, name) ? name : test);
  }
  return metrics;
}

Json as_json(const std::vector<RunCurves>& runs, const std::vector<std::string>& metrics) {
  Json all = Json::array();
  for (const auto& metric : metrics) {
    for (const auto& run : runs) {
      const auto curve = std::ranges::find(run.curves, metric, &track::Curve::metric);
      if (curve == run.curves.end()) continue;
      Json points = Json::array();
      for (const auto& point : curve->points) points.push_back({point.step, point.value});
      all.push_back({{"metric", metric},
                     {"run", run.name},
                     {"points", std::move(points)},
                     {"not_finite", curve->not_finite}});
    }
  }
  return all;
}

// Only a locale that says so cannot show other characters: containers often have none at all.
bool is_ascii_only() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
    if (value == nullptr || *value == '\0') continue;
    std::string locale;
    for (const char c : std::string_view(value)) {
      if (c != '-') locale += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return locale.find("utf8") == std::string::npos;
  }
  return false;
}

}  // namespace

Outcome run(const RunsPlotArguments& arguments, Context& context) {
  std::vector<RunCurves> runs;
  const auto names = arguments.names.empty() ? std::vector<std::string>{""} : arguments.names;
  for (const auto& name : names) {
    MUSTER_TRY(const auto directory, find_run({name, arguments.runs}, context.files));
    MUSTER_TRY(auto curves, track::read_curves(context.files, directory.metrics_file()));
    runs.push_back({run_name(directory), directory.path(), std::move(curves)});
  }
  name_apart(runs);
  const auto known = metrics_of(runs);
  if (known.empty()) {
    if (arguments.format == Format::kJson) context.console.line("[]");
    context.console.note(fmt::format("nothing is recorded yet in {}", runs.front().name));
    return 0;
  }
  MUSTER_TRY(const auto metrics, chosen(arguments.metrics, known));
  if (arguments.format == Format::kJson) {
    context.console.line(
        as_json(runs, metrics).dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  auto& console = context.console;
  PlotStyle style;
  if (console.width() > 0) style.width = console.width();
  style.colour = console.has_colour();
  style.ascii = is_ascii_only();
  bool first = true;
  for (const auto& metric : metrics) {
    std::vector<PlotCurve> curves;
    for (const auto& run : runs) {
      const auto curve = std::ranges::find(run.curves, metric, &track::Curve::metric);
      if (curve != run.curves.end()) curves.push_back({run.name, *curve});
    }
    console.out((std::exchange(first, false) ? "" : "\n") + terminal_plot(curves, style));
  }
  return 0;
}

}  // namespace muster::cli
