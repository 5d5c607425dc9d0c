// The command line: its tree of commands and options, its help, and what is wrong with a line that
// does not fit it. Behind this header nobody knows the library that parses it (CLI11):
//
//   command_tree.*   the tree
//   value_checks.*   what values may be
//   help.*           the words of the help pages
//
// Pure functions of their arguments, but for MUSTER_RUNS. Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"

#include "tools/muster/arguments.h"

namespace muster::cli {

// `words` without the program's name. An error (kUsage) is one sentence that says which word is
// wrong and what it might have been meant to be.
Result<Request> parse_command_line(const std::vector<std::string>& words);

// Whether an error is to be told as JSON. Also for lines that cannot be parsed.
bool wants_json(const std::vector<std::string>& words);

// The tree as data, for shell completion.
struct OptionSpec {
  std::vector<std::string> names;    // "-s", "--set"; empty: a positional argument
  std::string value;                 // "KEY=VALUE"; empty: a flag
  std::vector<std::string> choices;  // what the value may be; empty: anything
  std::string description;
};
struct CommandSpec {
  std::string name;
  std::string description;
  std::vector<OptionSpec> options;
  std::vector<CommandSpec> commands;
};
CommandSpec command_tree();

}  // namespace muster::cli
