#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/document.h"
#include "muster/config/load.h"
#include "muster/config/table.h"

#include "tools/muster/commands.h"
#include "tools/muster/job_facts.h"
#include "tools/muster/job_json.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// ": 44,426 parameters, 60,000 training samples and 1,407 steps"
std::string facts_text(const Json& facts) {
  std::vector<std::string> parts;
  const auto add = [&](const char* key, const char* what) {
    const auto at = facts.find(key);
    if (at == facts.end() || !at->is_number_unsigned() || at->get<uint64_t>() == 0) return;
    parts.push_back(fmt::format("{} {}", with_commas(at->get<uint64_t>()), what));
  };
  add("parameters", "parameters");
  add("train_samples", "training samples");
  add("steps", "steps");
  return parts.empty() ? "" : ": " + join_words(parts);
}

// What was replaced in model.file, or is "frozen" there.
std::vector<std::string> lines_in(const Json& facts, const char* key) {
  const auto at = facts.is_object() ? facts.find(key) : facts.end();
  if (at == facts.end() || !at->is_array()) return {};
  std::vector<std::string> lines;
  for (const Json& line : *at) {
    if (line.is_string()) lines.push_back(line.get<std::string>());
  }
  return lines;
}

Json option_json(const config::Option& option) {
  Json object = {{"key", option.key}, {"type", option.type_text()}, {"doc", option.doc}};
  object["default"] = option_value_json(option, config::Job{});
  if (!option.choices.empty()) object["choices"] = option.choices;
  if (!option.unit.empty()) object["unit"] = option.unit;
  object["environment"] = option.environment_name();
  return object;
}

// An option, or those in a section.
Json explain_json(const std::string& key) {
  const auto& table = config::option_table();
  if (const auto* option = table.find(key)) return option_json(*option);
  Json options = Json::array();
  for (const auto& option : table.options) {
    if (key.empty() || option.key.starts_with(key + ".")) options.push_back(option_json(option));
  }
  Json object = {{"key", key}};
  if (const auto* section = table.find_section(key)) object["doc"] = section->doc;
  object["options"] = std::move(options);
  return object;
}

}  // namespace

Outcome run(const ConfigCheckArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);

  Json facts;           // what the worker found out about data and model
  std::string skipped;  // why it was not asked
  if (arguments.no_data) {
    skipped = "--no-data";
  } else {
    const auto worker = find_worker(WorkerPlaces::of_process(arguments.worker));
    if (worker.ok()) {
      MUSTER_TRY(facts, check_with_worker(*worker, loaded.job, arguments.job, context.files));
    } else if (worker.error().kind() == ErrorKind::kUsage) {
      return worker.error();
    } else {
      skipped = worker.error().message();
    }
  }
  if (arguments.format == Format::kJson) {
    Json object = {{"ok", true}, {"job", arguments.job}, {"data_checked", skipped.empty()}};
    if (!skipped.empty()) object["reason"] = skipped;
    if (facts.is_object()) object["facts"] = facts;
    object["warnings"] = loaded.warnings;
    context.console.line(object.dump());
    return 0;
  }
  context.console.line(fmt::format("{}: {}", arguments.job,
                                   skipped.empty()
                                       ? "options, data and model fit together" + facts_text(facts)
                                       : "the options are fine"));
  for (const auto& line : lines_in(facts, "replaced")) {
    context.console.line("  model.file: replaced " + line);
  }
  if (auto frozen = lines_in(facts, "frozen"); !frozen.empty()) {
    constexpr size_t kShown = 6;
    const size_t count = frozen.size();
    if (count > kShown) {
      frozen.resize(kShown);
      frozen.emplace_back("...");
    }
    context.console.line(fmt::format("  model.file: {} not trained ({}): frozen, or not used",
                                     counted(count, "tensor"), fmt::join(frozen, ", ")));
  }
  if (!skipped.empty() && !arguments.no_data) {
    context.console.note("data and model were not looked at: " + skipped);
  }
  return 0;
}

Outcome run(const ConfigShowArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);
  context.console.out(arguments.format == Format::kJson ? job_json(loaded.job).dump(2) + "\n"
                                                        : config::resolved_yaml(loaded.job));
  return 0;
}

Outcome run(const ConfigExplainArguments& arguments, Context& context) {
  MUSTER_TRY(const auto text, config::explain(arguments.key));
  if (arguments.format == Format::kJson) {
    context.console.line(explain_json(arguments.key).dump(2));
  } else {
    context.console.line(trim(text));
  }
  return 0;
}

Outcome run(const ConfigSchemaArguments&, Context& context) {
  context.console.line(trim(config::json_schema()));
  return 0;
}

}  // namespace muster::cli
