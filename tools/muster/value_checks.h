// What a value on the command line may be. Each check returns nothing, or the end of a sentence in
// front of which CLI11 puts the option's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace muster::cli {

CLI::Validator one_of(const std::vector<std::string>& choices);
CLI::Validator whole_number(int64_t least);
CLI::Validator positive_number();  // or 0
CLI::Validator checkpoint_name();  // best, newest or a step
CLI::Validator sample_list();      // 1,5,8-10
CLI::Validator worker_id();        // also the name of a file

}  // namespace muster::cli
