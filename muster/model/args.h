// Numbers of a job file with the range they must be in; on top of config::ArgReader.
#pragma once

#include <optional>
#include <string_view>

#include "muster/config/node.h"
#include "muster/model/shape.h"

namespace muster::model {

// A whole number of at least `least`; without a fallback it must be there.
Result<int64_t> get_count(config::ArgReader& args, std::string_view key,
                          std::optional<int64_t> fallback = std::nullopt, int64_t least = 1);

// One number for height and width, or a list of the two.
Result<Pair> get_pair(config::ArgReader& args, std::string_view key,
                      std::optional<Pair> fallback = std::nullopt, int64_t least = 1);

// A share in [0, 1).
Result<double> get_share(config::ArgReader& args, std::string_view key, double fallback);

// A number above 0.
Result<double> get_positive(config::ArgReader& args, std::string_view key, double fallback);

}  // namespace muster::model
