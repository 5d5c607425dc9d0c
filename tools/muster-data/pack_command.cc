// muster data pack.
#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/node.h"
#include "muster/config/units.h"
#include "muster/data/pack/pack.h"

#include "tools/muster-data/data_commands.h"
#include "tools/muster-data/job_data.h"
#include "tools/muster/status_line.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// The options of a source that a job needs to read what was packed, as YAML.
std::vector<std::pair<std::string, std::string>> job_lines(const config::SourceOptions& source) {
  const config::SourceOptions defaults;
  const auto text = [](const std::string& value) { return config::Node::scalar(value).to_line(); };
  std::vector<std::pair<std::string, std::string>> lines = {{"format", text(source.format)},
                                                            {"path", text(source.path)}};
  if (source.target != defaults.target) lines.emplace_back("target", text(source.target));
  if (source.classes != defaults.classes) {
    lines.emplace_back("classes", std::to_string(source.classes));
  }
  if (source.context != defaults.context) {
    lines.emplace_back("context", std::to_string(source.context));
  }
  const auto numbers = [](const std::vector<double>& values) {
    return values.size() == 1 ? fmt::to_string(values.front())
                              : fmt::format("[{}]", fmt::join(values, ", "));
  };
  if (source.mean != defaults.mean) lines.emplace_back("mean", numbers(source.mean));
  if (source.deviation != defaults.deviation) {
    lines.emplace_back("deviation", numbers(source.deviation));
  }
  lines.emplace_back("args", source.args.to_line());
  return lines;
}

std::string progress_text(const NamedSource& source, const data::PackProgress& progress) {
  return fmt::format("{} {}: {} of {} samples, {} %",
                     progress.distributes ? "shuffling" : "packing", source.key,
                     with_commas(progress.samples_done), with_commas(progress.samples),
                     100 * progress.samples_done / progress.samples);
}

void print_job(const Json& results, Console& console) {
  console.line("\nIn a job file:\n\ndata:");
  for (const auto& result : results) {
    console.line(fmt::format("  {}:", result["source"].get<std::string>().substr(5)));
    for (const auto& [key, value] : result["options"].items()) {
      console.line(fmt::format("    {}: {}", key, value.get<std::string>()));
    }
  }
}

}  // namespace

Outcome pack_data(const DataPackArguments& arguments, Context& context) {
  MUSTER_TRY(const auto job, load_job(arguments.job, arguments.set, context));
  const auto block = config::parse_bytes(arguments.block);
  if (!block || *block < 1) {
    return Error(ErrorKind::kUsage, "--block is a number of bytes such as 4MiB, not '{}'",
                 arguments.block);
  }
  StatusLine line;
  auto setup = setup_for(job, context, line);
  setup.longest_block = 0;  // those that are too long are what is to be packed
  Json results = Json::array();
  MUSTER_TRY(const auto sources, sources_of(job, setup));
  for (const auto& source : sources) {
    MUSTER_TRY(const auto dataset, open_source(source, setup));
    const bool train = source.key == "data.train";
    data::PackOptions options;
    options.directory =
        (std::filesystem::absolute(arguments.out) / (train ? "train" : "test")).string();
    options.format = arguments.pack_as;
    options.block = static_cast<uint64_t>(*block);
    options.shuffle = arguments.shuffle && train;  // the order of test data has no effect
    options.seed = job.seed;
    options.progress = [&](const data::PackProgress& progress) {
      line.show_now_and_then([&] { return progress_text(source, progress); });
      return true;
    };
    auto packed = data::pack(*dataset, source.options, options, context.files);
    line.clear();
    if (!packed.ok()) return std::move(packed).error().context("{}", source.key);
    if (arguments.format == Format::kTable) {
      context.console.line(fmt::format("{}: {} samples in {}, {}", source.key,
                                       with_commas(packed->samples), counted(packed->files, "file"),
                                       counted(packed->blocks, "block")));
    }
    Json lines = Json::object();
    for (const auto& [key, value] : job_lines(packed->source)) lines[key] = value;
    results.push_back({{"source", source.key},
                       {"samples", packed->samples},
                       {"files", packed->files},
                       {"blocks", packed->blocks},
                       {"options", std::move(lines)}});
  }
  if (arguments.format == Format::kJson) {
    context.console.line(results.dump());
  } else {
    print_job(results, context.console);
  }
  return 0;
}

}  // namespace muster::cli
