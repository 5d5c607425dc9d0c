// Scripts that complete muster's commands, options, job options, runs and files in a shell. Made
// from the tree of commands and the table of options, so they know what this binary knows.
#pragma once

#include <string>
#include <vector>

#include "tools/muster/command_line.h"

namespace muster::cli {

struct CompletionWords {
  CommandSpec tree;
  std::vector<std::string> keys;                                          // of job options
  std::vector<std::string> sections;                                      // "optimizer"
  std::vector<std::pair<std::string, std::vector<std::string>>> choices;  // key, what it may be
};

// Of this binary.
CompletionWords completion_words();

std::string bash_completion(const CompletionWords& words);
std::string zsh_completion(const CompletionWords& words);
std::string fish_completion(const CompletionWords& words);

}  // namespace muster::cli
