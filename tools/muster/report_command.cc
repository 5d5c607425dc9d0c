// report: one HTML file about one or several runs.
#include <algorithm>
#include <filesystem>

#include "muster/base/text.h"

#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/out_file.h"
#include "tools/muster/report/page.h"

namespace muster::cli {
namespace {

constexpr size_t kMostRuns = 50;

// A file of ours may be replaced: whoever looks at a run makes the same report again and again.
bool is_report(FileSystem& files, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const auto text = files.read(path);
  return text.ok() && text->substr(0, 1000).find(report::kGenerator) != std::string::npos;
}

}  // namespace

Outcome run(const ReportArguments& arguments, Context& context) {
  const auto names = arguments.names.empty() ? std::vector<std::string>{""} : arguments.names;
  if (names.size() > kMostRuns) {
    return Error(ErrorKind::kUsage, "{} runs are more than a report can show: {} at most",
                 names.size(), kMostRuns);
  }
  const bool force = arguments.force || is_report(context.files, arguments.out);
  MUSTER_RETURN_IF_ERROR(check_out_file(context.files, arguments.out, force));
  std::vector<report::RunReport> runs;
  for (const auto& name : names) {
    MUSTER_TRY(const auto directory, find_run({name, arguments.runs}, context.files));
    runs.push_back(report::read_run(directory, context.files));
  }
  // Runs of one name, in several places, are told apart by their paths.
  std::vector<std::string> titles;
  for (const auto& run : runs) titles.push_back(run.title);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (std::ranges::count(titles, titles[i]) > 1) runs[i].title = runs[i].facts.path;
  }
  auto made = utc_timestamp(context.clock.wall());  // 2026-03-01T12:30:05Z
  std::ranges::replace(made, 'T', ' ');
  std::ranges::replace(made, 'Z', ' ');
  const auto html = report::page(runs, made + "UTC");
  MUSTER_RETURN_IF_ERROR(write_file_atomically(context.files, arguments.out, html));
  context.console.line(
      fmt::format("{}: {}, {}", arguments.out,
                  runs.size() == 1 ? runs.front().title : counted(runs.size(), "run"),
                  human_bytes(static_cast<double>(html.size()))));
  return 0;
}

}  // namespace muster::cli
