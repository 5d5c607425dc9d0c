// The files of this machine that a path with wildcards names.
#pragma once

#include <string>
#include <vector>

#include "muster/base/result.h"

namespace muster::data {

// The files that match a pattern with * and ? in its last part, by name bytewise; a path without
// them is taken as it is. Errors: none does (kData), or the directory cannot be listed (kIo).
Result<std::vector<std::string>> match_files(const std::string& pattern);

}  // namespace muster::data
