// runs list, show, compare. They only read, and nothing they read is trusted: a run directory may
// be half written, half deleted or of another version.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/table.h"
#include "muster/track/run_directory.h"

#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/job_json.h"
#include "tools/muster/run_facts.h"
#include "tools/muster/text_table.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using Align = TextTable::Align;

std::string dump(const Json& value, int indent = 2) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json facts_json(const RunFacts& facts) {
  Json metrics = Json::object();
  for (const auto& [name, value] : facts.metrics) metrics[name] = value;
  Json object = {
      {"name", facts.name}, {"path", facts.path}, {"state", run_state_name(facts.status.state)}};
  if (!facts.status.reason.empty()) object["reason"] = facts.status.reason;
  object["started"] = facts.status.started;
  object["updated"] = facts.status.updated;
  object["steps"] = facts.steps;
  object["metrics"] = std::move(metrics);
  object["weights_hash"] = facts.weights_hash;
  if (facts.damaged_blocks > 0) {
    object["damaged_blocks"] = facts.damaged_blocks;
    object["replaced_samples"] = facts.replaced_samples;
  }
  return object;
}

// "2026-03-01T12:30:05Z" as people read it.
std::string readable_time(const std::string& utc) {
  if (utc.size() < 16) return utc;
  std::string text = utc.substr(0, 16);
  std::ranges::replace(text, 'T', ' ');
  return text;
}

std::string short_hash(const std::string& hash) { return hash.substr(0, 8); }

// The job, if its file can still be read as one.
std::optional<config::Job> job_of(const track::RunDirectory& run, FileSystem& files) {
  auto job = load_run_job(run, {}, {}, "", files);
  if (!job.ok()) return std::nullopt;
  return std::move(job).value();
}

bool can_go_on(track::RunState state) {
  return state == track::RunState::kInterrupted || state == track::RunState::kDied ||
         state == track::RunState::kFailed;
}

void show_as_table(const RunFacts& facts, const std::optional<config::Job>& job,
                   const std::vector<ckpt::SnapshotInfo>& snapshots, const track::RunDirectory& run,
                   Console& console) {
  TextTable table({{""}, {""}});
  table.add({"run", {facts.name, Paint::kBold}});
  table.add({"path", facts.path});
  table.add(
      {"state", {std::string(run_state_name(facts.status.state)), paint_of(facts.status.state)}});
  if (!facts.status.reason.empty()) table.add({"reason", facts.status.reason});
  if (!facts.status.started.empty()) table.add({"started", readable_time(facts.status.started)});
  if (!facts.status.updated.empty()) table.add({"updated", readable_time(facts.status.updated)});
  table.add({"steps", with_commas(static_cast<uint64_t>(std::max<int64_t>(0, facts.steps)))});
  for (const auto& [name, value] : facts.metrics) {
    table.add({(facts.metrics_are_final ? "test " : "last ") + name, metric_text(value)});
  }
  if (!facts.weights_hash.empty()) table.add({"weights", facts.weights_hash});
  if (facts.damaged_blocks > 0) {
    table.add(
        {"damaged data", fmt::format("{}; {} replaced", counted(facts.damaged_blocks, "block"),
                                     counted(facts.replaced_samples, "sample"))});
  }
  for (const auto& snapshot : snapshots) {
    table.add({"checkpoint", fmt::format("step {}, {}{}", snapshot.step,
                                         human_bytes(static_cast<double>(snapshot.bytes())),
                                         snapshot.best ? ", best" : "")});
  }
  table.add({"log", run.log_file()});
  console.out(table.render(console));
  if (job) {
    TextTable options({{"option"}, {"value", Align::kLeft, true}});
    for (const auto& difference : config::diff(config::Job{}, *job)) {
      options.add({difference.key, difference.b});
    }
    if (!options.empty()) console.out("\n" + options.render(console));
  } else {
    console.line("\njob.yaml cannot be read as a job of this version");
  }
  if (can_go_on(facts.status.state)) {
    console.line(fmt::format("\nTo go on: muster resume {}", facts.path));
  }
}

// Both runs' metrics by name, in the order of the first.
std::vector<std::string> metric_names(const RunFacts& a, const RunFacts& b) {
  std::vector<std::string> names;
  for (const auto* facts : {&a, &b}) {
    for (const auto& [name, value] : facts->metrics) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::optional<double> metric(const RunFacts& facts, const std::string& name) {
  for (const auto& [each, value] : facts.metrics) {
    if (each == name) return value;
  }
  return std::nullopt;
}

struct Comparison {
  RunFacts a, b;
  std::vector<config::Difference> options;
  bool options_known = false;  // both job files could be read
  std::optional<bool> same_weights;

  // One sentence about the bits.
  std::string verdict() const {
    if (!same_weights) {
      return "Whether the weights are equal is not known: there is no finished result or "
             "checkpoint "
             "in both.";
    }
    if (a.steps != b.steps && !*same_weights) {
      return "The weights differ, and so do the numbers of steps.";
    }
    if (*same_weights) return "The weights are equal, bit for bit.";
    if (!options_known) return "The weights differ.";
    const bool expected = std::ranges::any_of(
        options, [](const auto& difference) { return !is_bit_neutral(difference.key); });
    if (expected) return "The weights differ, as the options do.";
    const bool tied = !a.fingerprint.empty() && !b.fingerprint.empty();
    const FingerprintDifference difference(a.fingerprint, b.fingerprint);
    if (tied && difference.any()) {
      return fmt::format("The weights differ, as the runs do in {}.", difference.text());
    }
    return "The weights differ although every option that decides the bits is equal: compare "
           "`muster doctor` on both machines, or the data changed.";
  }
};

Comparison compare(const track::RunDirectory& first, const track::RunDirectory& second,
                   FileSystem& files) {
  Comparison comparison;
  comparison.a = gather_facts(first, files);
  comparison.b = gather_facts(second, files);
  const auto job_a = job_of(first, files);
  const auto job_b = job_of(second, files);
  comparison.options_known = job_a && job_b;
  if (comparison.options_known) comparison.options = config::diff(*job_a, *job_b);
  if (!comparison.a.weights_hash.empty() && !comparison.b.weights_hash.empty()) {
    comparison.same_weights = comparison.a.weights_hash == comparison.b.weights_hash;
  }
  return comparison;
}

// "test loss": a metric may have the name of an option, or of a row here.
std::string metric_row(const std::string& name) {
  return name == "train loss" ? name : "test " + name;
}

void print_table(const Comparison& c, Console& console) {
  const bool one_name = c.a.name == c.b.name;
  TextTable table({{""},
                   {one_name ? c.a.path : c.a.name, Align::kLeft, true},
                   {one_name ? c.b.path : c.b.name, Align::kLeft, true}});
  table.add({"state",
             {std::string(run_state_name(c.a.status.state)), paint_of(c.a.status.state)},
             {std::string(run_state_name(c.b.status.state)), paint_of(c.b.status.state)}});
  // Not "steps": that is an option, which has a row of its own below if it differs. Nor has any
  // option a name with a blank in it, such as those of metrics here.
  table.add({"steps done", std::to_string(c.a.steps), std::to_string(c.b.steps)});
  for (const auto& name : metric_names(c.a, c.b)) {
    const auto text = [&](const RunFacts& facts) {
      const auto value = metric(facts, name);
      return value ? metric_text(*value) : std::string("-");
    };
    table.add({metric_row(name), text(c.a), text(c.b)});
  }
  table.add({"weights", c.a.weights_hash.empty() ? "-" : short_hash(c.a.weights_hash),
             c.b.weights_hash.empty() ? "-" : short_hash(c.b.weights_hash)});
  for (const auto& difference : c.options) {
    table.add({difference.key, difference.a, difference.b});
  }
  console.out(table.render(console));
  if (!c.options_known) {
    console.line("The options could not be compared: a job.yaml cannot be read.");
  } else if (c.options.empty()) {
    console.line("All options are equal.");
  }
  console.line(c.verdict());
}

}  // namespace

Outcome run(const RunsListArguments& arguments, Context& context) {
  MUSTER_TRY(const auto summaries, track::list_runs(context.files, arguments.runs));
  std::vector<RunFacts> all;
  for (const auto& summary : summaries) {
    const auto directory = track::RunDirectory::open(context.files, summary.path);
    if (directory.ok()) all.push_back(gather_facts(*directory, context.files));
  }
  std::ranges::reverse(all);
  if (arguments.format == Format::kJson) {
    Json array = Json::array();
    for (const auto& facts : all) array.push_back(facts_json(facts));
    context.console.line(dump(array));
    return 0;
  }
  if (all.empty()) {
    context.console.note(fmt::format(
        "there are no runs in '{}'; `muster train JOB` makes one, --runs looks elsewhere",
        arguments.runs));
    return 0;
  }
  TextTable table({{"name", Align::kLeft, true},
                   {"state"},
                   {"steps", Align::kRight},
                   {"result", Align::kLeft, true},
                   {"started (UTC)"},
                   {"weights"}});
  for (const auto& facts : all) {
    table.add({facts.name,
               {std::string(run_state_name(facts.status.state)), paint_of(facts.status.state)},
               with_commas(static_cast<uint64_t>(std::max<int64_t>(0, facts.steps))),
               metrics_text(facts.metrics),
               readable_time(facts.status.started),
               short_hash(facts.weights_hash)});
  }
  context.console.out(table.render(context.console));
  return 0;
}

Outcome run(const RunsShowArguments& arguments, Context& context) {
  MUSTER_TRY(const auto directory, find_run(arguments.run, context.files));
  const RunFacts facts = gather_facts(directory, context.files);
  const auto job = job_of(directory, context.files);
  ckpt::SnapshotStore store(context.files, directory.checkpoints(), 1, true);
  auto snapshots = store.list();
  const auto known = snapshots.ok() ? *snapshots : std::vector<ckpt::SnapshotInfo>();
  if (arguments.format == Format::kTable) {
    show_as_table(facts, job, known, directory, context.console);
    return 0;
  }
  Json object = facts_json(facts);
  object["checkpoints"] = Json::array();
  for (const auto& snapshot : known) {
    object["checkpoints"].push_back({{"step", snapshot.step},
                                     {"best", snapshot.best},
                                     {"bytes", snapshot.bytes()},
                                     {"path", snapshot.path}});
  }
  object["log"] = directory.log_file();
  object["job"] = job ? job_json(*job) : Json();
  object["result"] = directory.read_result().value_or(nlohmann::json());
  context.console.line(dump(object));
  return 0;
}

Outcome run(const RunsCompareArguments& arguments, Context& context) {
  MUSTER_TRY(const auto first, find_run({arguments.a, arguments.runs}, context.files));
  MUSTER_TRY(const auto second, find_run({arguments.b, arguments.runs}, context.files));
  const Comparison comparison = compare(first, second, context.files);
  if (arguments.format == Format::kTable) {
    print_table(comparison, context.console);
    return 0;
  }
  Json options = Json::array();
  for (const auto& difference : comparison.options) {
    options.push_back({{"key", difference.key},
                       {"a", difference.a},
                       {"b", difference.b},
                       {"decides_bits", !is_bit_neutral(difference.key)}});
  }
  Json object = {{"a", facts_json(comparison.a)}, {"b", facts_json(comparison.b)}};
  object["options"] = comparison.options_known ? std::move(options) : Json();
  object["same_weights"] = comparison.same_weights ? Json(*comparison.same_weights) : Json();
  object["verdict"] = comparison.verdict();
  context.console.line(dump(object));
  return 0;
}

}  // namespace muster::cli
