// The commands and their options, as CLI11 wants them: the table that parsing, help and completion
// come from. A new option has its place here, in arguments.h, and in the command that uses it.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "tools/muster/arguments.h"

namespace muster::cli {

// What is parsed with the tree ends up in `request`, which must outlive it.
std::unique_ptr<CLI::App> make_tree(Request& request);

}  // namespace muster::cli
