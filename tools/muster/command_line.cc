#include "tools/muster/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include <CLI/CLI.hpp>

#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/help.h"

namespace muster::cli {
namespace {

// Checks for values; CLI11 puts the option's name in front of what they return.
CLI::Validator one_of(const std::vector<std::string>& choices) {
  const auto check = [choices](const std::string& value) {
    if (std::ranges::find(choices, value) != choices.end()) return std::string();
    return fmt::format("must be {}, not '{}'{}", join_words(choices, "or"), value,
                       did_you_mean(value, choices));
  };
  return CLI::Validator(check, "");
}

template <typename Number>
bool parses_as(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

CLI::Validator whole_number(int64_t least) {
  const auto check = [least](const std::string& text) {
    int64_t value = 0;
    if (parses_as(text, value) && value >= least) return std::string();
    return fmt::format("must be a whole number, at least {}, not '{}'", least, text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator positive_number() {
  const auto check = [](const std::string& text) {
    double value = 0;
    if (parses_as(text, value) && value >= 0 && value <= 1e6) return std::string();
    return fmt::format("must be a number, at least 0, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator checkpoint_name() {
  const auto check = [](const std::string& text) {
    int64_t step = 0;
    if (text == "best" || text == "newest" || (parses_as(text, step) && step >= 0)) {
      return std::string();
    }
    return fmt::format("must be best, newest or the number of a step, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator sample_list() {
  const auto is_range = [](const std::string& text) {
    const auto parts = split(text, '-');
    uint64_t first = 0;
    uint64_t last = 0;
    return parts.size() <= 2 && parses_as(parts.front(), first) && parses_as(parts.back(), last) &&
           first <= last;
  };
  const auto check = [is_range](const std::string& text) {
    const auto ranges = split(text, ',');
    if (std::ranges::all_of(ranges, is_range)) return std::string();
    return fmt::format("must be numbers or ranges such as 0-9 or 1,5,8-10, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

// What completion and help know about a choice; the check itself is a lambda CLI11 cannot show.
const std::vector<std::string> kFormats = {"table", "json"};
const std::vector<std::string> kShells = {"bash", "zsh", "fish"};
const std::vector<std::string> kSources = {"test", "train"};

std::string runs_folder() {
  const char* value = std::getenv("MUSTER_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr || *value == '\0' ? "runs" : value;
}

void add_format(CLI::App* app, Format& format) {
  app->add_option_function<std::string>(
         "-o,--output",
         [&format](const std::string& text) {
           format = text == "json" ? Format::kJson : Format::kTable;
         },
         "for people (table) or for programs (json)")
      ->type_name("table|json")
      ->check(one_of(kFormats));
}

void add_set(CLI::App* app, std::vector<std::string>& set, const std::string& description) {
  app->add_option("-s,--set", set, description)->type_name("KEY=VALUE")->allow_extra_args(false);
}

void add_worker(CLI::App* app, std::string& worker) {
  app->add_option("--worker", worker, "the program that trains, instead of muster-worker")
      ->type_name("PROGRAM");
}

void add_several(CLI::App* app, SeveralArguments& several) {
  auto* workers =
      app->add_option("--workers", several.workers, "train with so many workers on this machine")
          ->type_name("N")
          ->check(whole_number(1));
  app->add_option("--hosts", several.hosts, "train on the machines that this file lists, over ssh")
      ->type_name("FILE")
      ->excludes(workers);
  app->add_option("--listen", several.listen,
                  "where other machines reach the coordinator; default: 127.0.0.1:0")
      ->type_name("HOST:PORT");
}

void add_runs(CLI::App* app, std::string& runs) {
  runs = runs_folder();
  app->add_option("--runs", runs, "where runs are; default: MUSTER_RUNS or ./runs")
      ->type_name("DIR");
}

void add_run(CLI::App* app, RunChoice& run, bool required) {
  const char* what = required ? "a run: its name, its path, or `latest`"
                              : "a run: its name or its path; default: the latest";
  app->add_option("RUN", run.name, what)->type_name("RUN")->required(required);
  add_runs(app, run.runs);
}

void add_checkpoint(CLI::App* app, std::string& checkpoint) {
  app->add_option("--checkpoint", checkpoint,
                  "which weights; default: the best if one was marked, else the newest")
      ->type_name("best|newest|STEP")
      ->check(checkpoint_name());
}

void add_job(CLI::App* app, std::string& job) {
  app->add_option("JOB", job, "a job file")->type_name("FILE")->required();
}

// A command whose arguments become the request once the whole line is parsed.
template <typename Arguments>
std::shared_ptr<Arguments> add_command(CLI::App* parent, CLI::App*& app, const std::string& name,
                                       const std::string& description, Request& request) {
  app = parent->add_subcommand(name, description);
  const bool at_top = parent->get_parent() == nullptr;
  app->footer(examples_of(at_top ? name : parent->get_name() + " " + name));
  auto arguments = std::make_shared<Arguments>();
  app->callback([arguments, &request] { request = *arguments; });
  return arguments;
}

void add_train(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a =
      add_command<TrainArguments>(root, app, "train", "train a model as a job file says", request);
  add_job(app, a->job);
  add_set(app, a->set, "change an option of the job; may be repeated");
  auto* quiet = app->add_flag("-q,--quiet", a->quiet, "only the result");
  app->add_flag("--json", a->json, "JSON lines: one for each event, the result as the last")
      ->excludes(quiet);
  app->add_option("--run-dir", a->run_directory, "where this run is written; must not exist yet")
      ->type_name("DIR");
  add_several(app, a->several);
  add_worker(app, a->worker);
}

void add_verify(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<VerifyArguments>(
      root, app, "verify", "prove that faults do not change a bit of what a job gives", request);
  app->add_option("JOB", a->job, "the job file")->type_name("JOB")->required();
  add_set(app, a->set, "change an option of the job, for both runs");
  app->add_option("--workers", a->workers, "of the disturbed run; default: 4")
      ->type_name("N")
      ->check(whole_number(1));
  app->add_option("--faults", a->faults,
                  "which and how many; default: kill:20,stop:5,leave:5,join:5")
      ->type_name("KIND:N,...");
  app->add_option("--seed", a->seed, "decides when and whom they hit; default: 1")
      ->type_name("N")
      ->check(whole_number(0));
  app->add_flag("--calm", a->calm, "a fault only when everybody is in again, to measure each");
  app->add_option("--folder", a->folder, "where both runs are written, and kept")->type_name("DIR");
  app->add_flag("-q,--quiet", a->quiet, "do not show the undisturbed run");
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_resume(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<ResumeArguments>(root, app, "resume",
                                        "go on with a run that was interrupted", request);
  add_run(app, a->run, false);
  add_set(app, a->set, "only threads, workers, passes, steps and time may change");
  auto* quiet = app->add_flag("-q,--quiet", a->quiet, "only the result");
  app->add_flag("--json", a->json, "JSON lines: one for each event, the result as the last")
      ->excludes(quiet);
  add_several(app, a->several);
  add_worker(app, a->worker);
}

CLI::Validator worker_id() {
  const auto check = [](const std::string& text) {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '_' || c == '-';
    };
    if (!text.empty() && text.size() <= 100 && text[0] != '.' && std::ranges::all_of(text, plain)) {
      return std::string();
    }
    return fmt::format("must be letters, digits, '-', '_' and '.', not '{}'", text);
  };
  return CLI::Validator(check, "");
}

void add_job_of_several(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  const char* where = "a run, or HOST:PORT of a coordinator; default: the latest run";
  auto status = add_command<StatusArguments>(
      root, app, "status", "who trains a job of several workers, and what happened", request);
  app->add_option("RUN", status->run.name, where)->type_name("RUN");
  add_runs(app, status->run.runs);
  app->add_flag("-w,--watch", status->watch, "again every second, until the job ends");
  add_format(app, status->format);

  auto join = add_command<JoinArguments>(
      root, app, "join", "add a worker on this machine to a job that is running", request);
  app->add_option("RUN", join->run.name, where)->type_name("RUN");
  add_runs(app, join->run.runs);
  app->add_option("--run", join->run_directory,
                  "with HOST:PORT: the run's directory, on storage that all workers share")
      ->type_name("DIR");
  app->add_option("--id", join->id, "the worker's name in the job; default: this machine's")
      ->type_name("ID")
      ->check(worker_id());
  app->add_option("--host", join->host,
                  "where the other workers reach this machine; default: as the coordinator does")
      ->type_name("HOST");
  app->add_flag("-q,--quiet", join->quiet, "no progress");
  add_worker(app, join->worker);

  auto coordinator = add_command<CoordinatorArguments>(
      root, app, "coordinator", "a coordinator alone, for workers that join", request);
  app->add_option("JOB", coordinator->job, "a job file, or a run directory to go on with")
      ->type_name("FILE")
      ->required();
  add_set(app, coordinator->set, "change an option of the job; may be repeated");
  app->add_option("--listen", coordinator->listen,
                  "where workers reach it; default: 127.0.0.1:0, this machine only")
      ->type_name("HOST:PORT");
  app->add_option("--run-dir", coordinator->run_directory,
                  "where this run is written; must not exist yet")
      ->type_name("DIR");
}

void add_eval(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<EvalArguments>(root, app, "eval", "measure a trained model on test data",
                                      request);
  add_run(app, a->run, true);
  add_checkpoint(app, a->checkpoint);
  add_set(app, a->set, "only data.test, eval and threads may change");
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_predict(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<PredictArguments>(root, app, "predict",
                                         "what a trained model says about samples", request);
  add_run(app, a->run, true);
  add_checkpoint(app, a->checkpoint);
  auto* samples =
      app->add_option("--samples", a->samples, "which samples, from 0: 0-9, or 1,5,8-10")
          ->type_name("A-B")
          ->check(sample_list());
  auto* from = app->add_option("--from", a->from, "from which data; default: test")
                   ->type_name("test|train")
                   ->check(one_of(kSources));
  auto* prompt = app->add_option("--prompt", a->prompt, "for text: what to go on from")
                     ->type_name("TEXT")
                     ->excludes(samples)
                     ->excludes(from);
  app->add_flag("--raw", a->raw, "all that the model puts out, as JSON")->excludes(prompt);
  app->add_option("--length", a->length, "how many characters to write")
      ->type_name("N")
      ->check(whole_number(1))
      ->needs(prompt);
  app->add_option("--temperature", a->temperature, "0: always the likeliest; 1: as learnt")
      ->type_name("T")
      ->check(positive_number())
      ->needs(prompt);
  app->add_option("--seed", a->seed, "the same seed writes the same text")
      ->type_name("N")
      ->check(whole_number(0))
      ->needs(prompt);
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_config(CLI::App* root, Request& request) {
  CLI::App* group = root->add_subcommand("config", "look at job files and their options");
  group->footer(examples_of("config"));
  CLI::App* app = nullptr;
  auto check = add_command<ConfigCheckArguments>(
      group, app, "check", "whether a job can run: options, files, data, shapes", request);
  add_job(app, check->job);
  add_set(app, check->set, "change an option of the job; may be repeated");
  app->add_flag("--no-data,--offline", check->no_data, "only the options; open no data");
  add_format(app, check->format);
  add_worker(app, check->worker);

  auto show = add_command<ConfigShowArguments>(group, app, "show",
                                               "a job with every option spelled out", request);
  add_job(app, show->job);
  add_set(app, show->set, "change an option of the job; may be repeated");
  add_format(app, show->format);

  auto explain = add_command<ConfigExplainArguments>(
      group, app, "explain", "what an option is for, what it may be, its default", request);
  app->add_option("KEY", explain->key, "an option or a section; default: the whole job")
      ->type_name("KEY");
  add_format(app, explain->format);

  add_command<ConfigSchemaArguments>(group, app, "schema", "JSON schema of a job file, for editors",
                                     request);
}

void add_runs_commands(CLI::App* root, Request& request) {
  CLI::App* group = root->add_subcommand("runs", "look at runs, past and present");
  group->footer(examples_of("runs"));
  CLI::App* app = nullptr;
  auto list =
      add_command<RunsListArguments>(group, app, "list", "all runs, the newest first", request);
  add_runs(app, list->runs);
  add_format(app, list->format);

  auto show = add_command<RunsShowArguments>(group, app, "show", "one run in detail", request);
  add_run(app, show->run, false);
  add_format(app, show->format);

  auto compare = add_command<RunsCompareArguments>(
      group, app, "compare", "two runs: options that differ, results, same bits or not", request);
  app->add_option("A", compare->a, "a run: its name or its path")->type_name("RUN")->required();
  app->add_option("B", compare->b, "another")->type_name("RUN")->required();
  add_runs(app, compare->runs);
  add_format(app, compare->format);
}

void add_others(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto exported = add_command<ExportArguments>(
      root, app, "export", "a run's weights as one file that Python reads", request);
  add_run(app, exported->run, true);
  app->add_option("--out", exported->out, "the file to write")->type_name("FILE")->required();
  add_checkpoint(app, exported->checkpoint);
  app->add_flag("--with-job", exported->with_job, "also write the job file, as FILE.job.yaml");
  app->add_flag("-f,--force", exported->force, "replace what is there");
  add_format(app, exported->format);

  auto doctor = add_command<DoctorArguments>(
      root, app, "doctor", "whether this machine can train, how fast, what to change", request);
  add_runs(app, doctor->runs);
  add_format(app, doctor->format);
  add_worker(app, doctor->worker);

  auto completion = add_command<CompletionArguments>(
      root, app, "completion", "a script that completes commands in your shell", request);
  app->add_option("SHELL", completion->shell, "bash, zsh or fish")
      ->type_name("bash|zsh|fish")
      ->check(one_of(kShells))
      ->required();

  auto version =
      add_command<VersionArguments>(root, app, "version", "which Muster this is", request);
  add_format(app, version->format);
}

// The tree; what is parsed with it ends up in `request`, which must outlive it.
std::unique_ptr<CLI::App> make_tree(Request& request) {
  auto root = std::make_unique<CLI::App>(kTagline, "muster");
  root->formatter(help_formatter());
  root->set_help_flag("-h,--help", "explain this command");
  root->require_subcommand(0, 1);  // a word after a command is never another command
  root->footer(kRootFooter);
  root->add_flag_callback(
      "--version", [&request] { request = VersionArguments{}; }, "which Muster this is");
  add_train(root.get(), request);
  add_verify(root.get(), request);
  add_resume(root.get(), request);
  add_job_of_several(root.get(), request);
  add_eval(root.get(), request);
  add_predict(root.get(), request);
  add_config(root.get(), request);
  add_runs_commands(root.get(), request);
  add_others(root.get(), request);
  return root;
}

// The command that the words reached: "config" for `muster config chek`.
const CLI::App* deepest(const CLI::App* app) {
  const auto chosen = app->get_subcommands();
  return chosen.empty() ? app : deepest(chosen.front());
}

std::string full_name(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : full_name(app->get_parent()) + " " + app->get_name();
}

std::vector<std::string> option_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const auto* option : app->get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const auto* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

// "--lr" where somebody meant -s optimizer.lr: the key, or "".
std::string meant_job_option(const std::string& name) {
  const auto& table = config::option_table();
  if (table.find(name) != nullptr) return name;
  for (const auto& option : table.options) {
    if (option.name() == name) return option.key;
  }
  return "";
}

Error unknown_option(const std::string& word, const CLI::App* app) {
  const std::string name = word.substr(0, word.find('='));
  const std::string suggestion = did_you_mean(name, option_names(app));
  const bool takes_set = app->get_option_no_throw("--set") != nullptr;
  if (suggestion.empty() && takes_set && name.starts_with("--")) {
    const std::string key = meant_job_option(name.substr(2));
    if (!key.empty()) {
      return Error(ErrorKind::kUsage,
                   "{} has no option '{}'; options of the job are set with -s {}=...",
                   full_name(app), name, key);
    }
  }
  return Error(ErrorKind::kUsage, "{} has no option '{}'{}; see {} --help", full_name(app), name,
               suggestion, full_name(app));
}

Error unknown_word(const std::string& word, const CLI::App* app) {
  if (word.size() > 1 && word.starts_with('-')) return unknown_option(word, app);
  const auto commands = command_names(app);
  if (!commands.empty()) {
    const std::string suggestion = did_you_mean(word, commands);
    return Error(
        ErrorKind::kUsage, "{} has no command '{}'{}", full_name(app), word,
        suggestion.empty() ? fmt::format("; it has {}", join_words(commands)) : suggestion);
  }
  if (word.find('=') != std::string::npos && app->get_option_no_throw("--set") != nullptr) {
    return Error(ErrorKind::kUsage, "'{}' stands alone; options of the job are set with -s {}",
                 word, word);
  }
  return Error(ErrorKind::kUsage, "{} does not take '{}'; see {} --help", full_name(app), word,
               full_name(app));
}

// The sentence for a positional argument or an option that must be there.
Error missing(const CLI::App* app) {
  for (const auto* option : app->get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    return Error(ErrorKind::kUsage, "{} needs {}: {}; see {} --help", full_name(app),
                 option->get_positional() ? option->get_name(true) : option->get_name(),
                 option->get_description(), full_name(app));
  }
  return Error(ErrorKind::kUsage, "{} needs more; see {} --help", full_name(app), full_name(app));
}

// In our words, most telling first: a word that nobody knows is likelier the mistake than what is
// missing because of it.
Error in_words(const CLI::ParseError& error, const CLI::App* root) {
  const CLI::App* app = deepest(root);
  const CLI::App* level = app;
  do {
    const auto rest = level->remaining();
    if (!rest.empty() && rest.front() != "--") return unknown_word(rest.front(), app);
    level = level->get_parent();
  } while (level != nullptr);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return missing(app);
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return Error(ErrorKind::kUsage, "{} needs a value after it; see {} --help",
                 text.substr(0, text.find(':')), full_name(app));
  }
  if (const size_t at = text.find(" excludes "); at != std::string::npos) {
    return Error(ErrorKind::kUsage, "{} and {} cannot be used together", text.substr(0, at),
                 text.substr(at + std::string_view(" excludes ").size()));
  }
  return Error(ErrorKind::kUsage, "{}", text);
}

OptionSpec option_spec(const CLI::Option& option) {
  OptionSpec spec;
  for (const auto& name : option.get_snames()) spec.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) spec.names.push_back("--" + name);
  if (option.get_expected_max() > 0) spec.value = option.get_type_name();
  if (spec.value.find('|') != std::string::npos) spec.choices = split(spec.value, '|');
  std::erase(spec.choices, "STEP");
  spec.description = option.get_description();
  return spec;
}

CommandSpec command_spec(const CLI::App& app) {
  CommandSpec spec{app.get_name(), app.get_description(), {}, {}};
  for (const auto* option : app.get_options()) spec.options.push_back(option_spec(*option));
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    spec.commands.push_back(command_spec(*sub));
  }
  return spec;
}

}  // namespace

Result<Request> parse_command_line(const std::vector<std::string>& words) {
  if (words.empty()) return Request(TextRequest{std::string(kWelcome)});
  Request request;
  const auto root = make_tree(request);
  try {
    root->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return Request(TextRequest{deepest(root.get())->help()});
  } catch (const CLI::ParseError& error) {
    return in_words(error, root.get());
  }
  if (!std::holds_alternative<TextRequest>(request)) return request;
  const CLI::App* app = deepest(root.get());
  return Error(ErrorKind::kUsage, "{} needs one of {}; see {} --help", full_name(app),
               join_words(command_names(app), "or"), full_name(app));
}

bool wants_json(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json" || words[i] == "-ojson" || words[i] == "--output=json") return true;
    const bool output = words[i] == "-o" || words[i] == "--output";
    if (output && i + 1 < words.size() && words[i + 1] == "json") return true;
  }
  return false;
}

CommandSpec command_tree() {
  Request unused;
  return command_spec(*make_tree(unused));
}

}  // namespace muster::cli
