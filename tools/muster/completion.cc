#include "tools/muster/completion.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "muster/base/text.h"
#include "muster/config/table.h"

#include "tools/muster/commands.h"

namespace muster::cli {
namespace {

struct FlatCommand {
  std::string path;  // "config check"; "" is muster itself
  const CommandSpec* spec;
};

void flatten(const CommandSpec& spec, const std::string& path, std::vector<FlatCommand>& into) {
  into.push_back({path, &spec});
  for (const auto& sub : spec.commands) {
    flatten(sub, path.empty() ? sub.name : path + " " + sub.name, into);
  }
}

std::vector<FlatCommand> all_commands(const CompletionWords& words) {
  std::vector<FlatCommand> commands;
  flatten(words.tree, "", commands);
  return commands;
}

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// What stands for a value, as the scripts' own functions call it.
std::string kind_of(const OptionSpec& option) {
  if (!option.choices.empty()) return "words " + joined(option.choices);
  if (option.value == "KEY=VALUE") return "assignments";
  if (option.value == "KEY") return "keys";
  if (option.value == "RUN") return "runs";
  if (option.value == "DIR") return "directories";
  if (option.value == "FILE" || option.value == "PROGRAM") return "files";
  return "nothing";
}

// The case branches shared by bash and zsh: from the words so far to the command, from the word
// before to a value, and from the command to its first positional argument.
std::string branch_to_command(const std::vector<FlatCommand>& commands) {
  std::string text;
  for (const auto& [path, spec] : commands) {
    if (path.empty()) continue;
    const size_t blank = path.rfind(' ');
    const std::string from = blank == std::string::npos
                                 ? " " + path
                                 : path.substr(0, blank) + " " + path.substr(blank + 1);
    text += fmt::format("      {}) command={} ;;\n", in_quotes(from), in_quotes(path));
  }
  return text;
}

std::string branch_to_value(const std::vector<FlatCommand>& commands) {
  std::string text;
  for (const auto& [path, spec] : commands) {
    for (const auto& option : spec->options) {
      if (option.value.empty() || option.names.empty()) continue;
      std::vector<std::string> patterns;
      for (const auto& name : option.names)
        patterns.push_back(in_quotes(fmt::format("{}:{}", path, name)));
      text +=
          fmt::format("    {}) _muster_{}; return ;;\n", fmt::join(patterns, "|"), kind_of(option));
    }
  }
  return text;
}

std::string branch_to_positional(const std::vector<FlatCommand>& commands) {
  std::string text;
  for (const auto& [path, spec] : commands) {
    if (!spec->commands.empty()) continue;
    for (const auto& option : spec->options) {
      if (!option.names.empty()) continue;
      text += fmt::format("    {}) _muster_{} ;;\n", in_quotes(path), kind_of(option));
      break;
    }
  }
  return text;
}

std::string branch_to_choices(const CompletionWords& words) {
  std::string text;
  for (const auto& [key, choices] : words.choices) {
    text += fmt::format("    {}) _muster_words {} ;;\n", key, joined(choices));
  }
  return text;
}

std::vector<std::string> sub_names(const CommandSpec& spec) {
  std::vector<std::string> names;
  for (const auto& sub : spec.commands) names.push_back(sub.name);
  return names;
}

std::vector<std::string> all_option_names(const CommandSpec& spec) {
  std::vector<std::string> names;
  for (const auto& option : spec.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

constexpr std::string_view kBash =
    R"(# Completes muster in bash. Made by `muster completion bash`; do not edit.
#   source <(muster completion bash)

_muster_words() {{ COMPREPLY=($(compgen -W "$*" -- "$cur")); }}
_muster_files() {{ compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur")); }}
_muster_directories() {{ compopt -o filenames; COMPREPLY=($(compgen -d -- "$cur")); }}
_muster_nothing() {{ COMPREPLY=(); }}
_muster_keys() {{ _muster_words "$_muster_all_keys $_muster_sections"; }}
_muster_assignments() {{
  compopt -o nospace
  COMPREPLY=($(compgen -S = -W "$_muster_all_keys" -- "$cur"))
}}
_muster_runs() {{
  local job names=latest
  for job in "${{MUSTER_RUNS:-runs}}"/*/job.yaml; do
    [[ -e $job ]] || continue
    job=${{job%/job.yaml}}
    names+=" ${{job##*/}}"
  done
  compopt -o filenames
  COMPREPLY=($(compgen -W "$names" -- "$cur") $(compgen -d -- "$cur"))
}}
# The value after -s KEY=, where the option has a fixed choice.
_muster_value_of() {{
  case "$1" in
{choices}    *) _muster_files ;;
  esac
}}

_muster() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command="" i
  COMPREPLY=()
  # bash makes three words of key=value
  if [[ $cur == "=" ]]; then cur=""; _muster_value_of "$prev"; return; fi
  if [[ $prev == "=" ]]; then _muster_value_of "${{COMP_WORDS[COMP_CWORD - 2]}}"; return; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
{commands}    esac
  done
  case "$command:$prev" in
{values}  esac
  if [[ $cur == -* ]]; then
    case "$command" in
{options}    esac
    return
  fi
  case "$command" in
{subcommands}{positionals}  esac
}}
_muster_all_keys={keys}
_muster_sections={sections}
complete -F _muster muster
)";

constexpr std::string_view kZsh = R"(#compdef muster
# Completes muster in zsh. Made by `muster completion zsh`; do not edit.
#   muster completion zsh > ~/.zfunc/_muster    (with ~/.zfunc in fpath, before compinit)

_muster_words() {{ compadd -- "$@" }}
_muster_files() {{ _files }}
_muster_directories() {{ _files -/ }}
_muster_nothing() {{ return 1 }}
_muster_keys() {{ compadd -- {keys} {sections} }}
_muster_assignments() {{
  if compset -P '*='; then
    _muster_value_of "${{IPREFIX%=}}"
  else
    compadd -S = -- {keys}
  fi
}}
_muster_runs() {{
  local -a names=("${{MUSTER_RUNS:-runs}}"/*/job.yaml(N:h:t))
  compadd -- latest $names
  _files -/
}}
# The value after -s KEY=, where the option has a fixed choice.
_muster_value_of() {{
  case "$1" in
{choices}    *) _files ;;
  esac
}}

_muster() {{
  local command="" i prev="$words[CURRENT-1]" cur="$words[CURRENT]"
  local -a list
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command $words[i]" in
{commands}    esac
  done
  case "$command:$prev" in
{values}  esac
  if [[ $cur == -* ]]; then
    case "$command" in
{options}    esac
    _describe option list
    return
  fi
  case "$command" in
{subcommands}{positionals}  esac
}}

if [[ $funcstack[1] == _muster ]]; then _muster "$@"; else compdef _muster muster; fi
)";

constexpr std::string_view kFish =
    R"(# Completes muster in fish. Made by `muster completion fish`; do not edit.
#   muster completion fish > ~/.config/fish/completions/muster.fish

# Whether the words so far are exactly this command.
function __muster_at
    set -l command
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
{commands}        end
    end
    test "$command" = "$argv"
end
function __muster_keys
    printf '%s\n' {keys}
end
function __muster_assignments
    __muster_keys | string replace -r '$' '='
{choices}end
function __muster_runs
    echo latest
    set -l runs runs
    set -q MUSTER_RUNS; and set runs $MUSTER_RUNS
    for job in $runs/*/job.yaml
        path basename (path dirname $job)
    end
end

complete -c muster -f
{completions})";

// "name:description" for zsh's _describe.
std::string described(std::string_view name, std::string_view description) {
  std::string escaped;
  for (const char c : name) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return in_quotes(fmt::format("{}:{}", escaped, description));
}

// One `complete` line of fish for a value.
std::string fish_value(const OptionSpec& option) {
  if (!option.choices.empty()) return " -x -a " + in_quotes(joined(option.choices));
  if (option.value == "KEY=VALUE") return " -x -a '(__muster_assignments)'";
  if (option.value == "KEY") return " -x -a '(__muster_keys)'";
  if (option.value == "RUN") return " -x -a '(__muster_runs) (__fish_complete_directories)'";
  if (option.value == "DIR") return " -x -a '(__fish_complete_directories)'";
  if (option.value == "FILE" || option.value == "PROGRAM") return " -r -F";
  return option.value.empty() ? "" : " -x";
}

std::string fish_lines(const FlatCommand& command) {
  const std::string at = fmt::format("complete -c muster -n '__muster_at {}'", command.path);
  std::string text;
  for (const auto& sub : command.spec->commands) {
    text += fmt::format("{} -a {} -d {}\n", at, sub.name, in_quotes(sub.description));
  }
  for (const auto& option : command.spec->options) {
    if (option.names.empty()) {
      const std::string value = fish_value(option);
      // For a positional -x and -r mean nothing; what is left are its words, or files.
      text += value == " -r -F" ? at + " -F\n"
                                : at + value.substr(std::min<size_t>(3, value.size())) + "\n";
      continue;
    }
    std::string names;
    for (const auto& name : option.names) {
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    text +=
        fmt::format("{}{}{} -d {}\n", at, names, fish_value(option), in_quotes(option.description));
  }
  return text;
}

}  // namespace

CompletionWords completion_words() {
  CompletionWords words;
  words.tree = command_tree();
  const auto& table = config::option_table();
  for (const auto& option : table.options) {
    words.keys.push_back(option.key);
    if (!option.choices.empty()) words.choices.emplace_back(option.key, option.choices);
  }
  for (const auto& section : table.sections) {
    if (!section.key.empty()) words.sections.push_back(section.key);
  }
  return words;
}

std::string bash_completion(const CompletionWords& words) {
  const auto commands = all_commands(words);
  std::string options;
  std::string subcommands;
  for (const auto& [path, spec] : commands) {
    options += fmt::format("      {}) _muster_words {} ;;\n", in_quotes(path),
                           joined(all_option_names(*spec)));
    if (spec->commands.empty()) continue;
    subcommands +=
        fmt::format("    {}) _muster_words {} ;;\n", in_quotes(path), joined(sub_names(*spec)));
  }
  return fmt::format(fmt::runtime(kBash), fmt::arg("choices", branch_to_choices(words)),
                     fmt::arg("commands", branch_to_command(commands)),
                     fmt::arg("values", branch_to_value(commands)), fmt::arg("options", options),
                     fmt::arg("subcommands", subcommands),
                     fmt::arg("positionals", branch_to_positional(commands)),
                     fmt::arg("keys", in_quotes(joined(words.keys))),
                     fmt::arg("sections", in_quotes(joined(words.sections))));
}

std::string zsh_completion(const CompletionWords& words) {
  const auto commands = all_commands(words);
  std::string options;
  std::string subcommands;
  for (const auto& [path, spec] : commands) {
    std::string list;
    for (const auto& option : spec->options) {
      for (const auto& name : option.names) list += " " + described(name, option.description);
    }
    options += fmt::format("      {}) list=({}) ;;\n", in_quotes(path), list);
    if (spec->commands.empty()) continue;
    list.clear();
    for (const auto& sub : spec->commands) list += " " + described(sub.name, sub.description);
    subcommands +=
        fmt::format("    {}) list=({}); _describe command list ;;\n", in_quotes(path), list);
  }
  return fmt::format(
      fmt::runtime(kZsh), fmt::arg("choices", branch_to_choices(words)),
      fmt::arg("commands", branch_to_command(commands)),
      fmt::arg("values", branch_to_value(commands)), fmt::arg("options", options),
      fmt::arg("subcommands", subcommands), fmt::arg("positionals", branch_to_positional(commands)),
      fmt::arg("keys", joined(words.keys)), fmt::arg("sections", joined(words.sections)));
}

std::string fish_completion(const CompletionWords& words) {
  std::string commands;
  std::string completions;
  std::string choices;
  for (const auto& command : all_commands(words)) {
    completions += fish_lines(command);
    if (command.path.empty()) continue;
    const bool top = command.path.find(' ') == std::string::npos;
    commands += fmt::format("            case {}\n                set command {}\n",
                            in_quotes((top ? " " : "") + command.path), in_quotes(command.path));
  }
  for (const auto& [key, values] : words.choices) {
    choices += fmt::format("    printf '{}=%s\\n' {}\n", key, joined(values));
  }
  return fmt::format(fmt::runtime(kFish), fmt::arg("commands", commands),
                     fmt::arg("keys", joined(words.keys)), fmt::arg("choices", choices),
                     fmt::arg("completions", completions));
}

Outcome run(const CompletionArguments& arguments, Context& context) {
  const auto words = completion_words();
  if (arguments.shell == "bash") context.console.out(bash_completion(words));
  if (arguments.shell == "zsh") context.console.out(zsh_completion(words));
  if (arguments.shell == "fish") context.console.out(fish_completion(words));
  return 0;
}

}  // namespace muster::cli
