// The file that a command writes its result to: --out.
#pragma once

#include <string>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::cli {

// An error (kUsage) if nothing can be written there, or, without `force`, if it would replace a
// file.
Status check_out_file(FileSystem& files, const std::string& path, bool force);

}  // namespace muster::cli
