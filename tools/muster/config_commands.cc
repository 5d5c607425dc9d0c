#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "muster/base/scratch_directory.h"
#include "muster/base/text.h"
#include "muster/config/document.h"
#include "muster/config/load.h"
#include "muster/config/table.h"

#include "tools/muster/commands.h"
#include "tools/muster/job_json.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// What it wrote last, if it wrote anything: "; it said: ..."
std::string last_words(const WorkerEnd& end) {
  const std::string line = split(std::string(trim(end.errors)), '\n').back();
  return line.empty() ? "" : "; it said: " + line;
}

// What went wrong in the worker, as our own error: its last line, without its name in front.
Error worker_error(const WorkerEnd& end, const std::string& file, const std::string& stands_for) {
  const auto lines = split(std::string(trim(end.errors)), '\n');
  std::string message = lines.back();
  const std::string prefix = "muster: ";  // it speaks in our name
  if (message.starts_with(prefix)) message.erase(0, prefix.size());
  if (message.empty()) message = fmt::format("the worker left with exit code {}", end.exit_code);
  const bool known = end.exit_code >= static_cast<int>(ErrorKind::kInternal) &&
                     end.exit_code <= static_cast<int>(ErrorKind::kMachine);
  return Error(known ? static_cast<ErrorKind>(end.exit_code) : ErrorKind::kInternal, "{}",
               replaced(message, file, stands_for));
}

// Has the worker open the data and build the model. Returns the facts it found.
Result<Json> check_with_worker(const std::string& worker, const config::Job& job,
                               const std::string& name, Context& context) {
  MUSTER_TRY(const auto scratch, ScratchDirectory::make("muster", "/tmp"));
  const std::string file = scratch.path() + "/job.yaml";
  MUSTER_RETURN_IF_ERROR(write_file_atomically(context.files, file, resolved_yaml(job)));
  MUSTER_TRY(const auto end, capture_worker(worker, {"check", "--job", file, "--written", name}));
  if (const auto death = exit_message(end, "the worker", "")) {
    return Error(death->kind, "{}{}", death->sentence, last_words(end));
  }
  if (end.exit_code != 0) {
    // What is not in the file, as from -s, is named by its line in the resolved job.
    return worker_error(end, file, name + " (as `muster config show` prints it)");
  }
  Json facts = Json::parse(end.output, nullptr, false);
  return facts.is_object() ? std::move(facts) : Json::object();
}

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
      MUSTER_TRY(facts, check_with_worker(*worker, loaded.job, arguments.job, context));
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
