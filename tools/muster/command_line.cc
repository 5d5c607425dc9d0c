#include "tools/muster/command_line.h"

#include <CLI/CLI.hpp>

#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/command_tree.h"
#include "tools/muster/help.h"

namespace muster::cli {
namespace {

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
    const std::string option = text.substr(0, text.find(':'));
    // "--seed: 1 required TYPE missing" and "--seed: At most 1 required but received 2".
    if (text.find(" but received ") != std::string::npos) {
      return Error(ErrorKind::kUsage, "{} is given more than once", option);
    }
    return Error(ErrorKind::kUsage, "{} needs a value after it; see {} --help", option,
                 full_name(app));
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
