// From the entries of a .pt2 to a Program. Used by program.cc only.
#pragma once

#include <span>
#include <string>

#include "muster/base/result.h"
#include "muster/pt2/program.h"

namespace muster::pt2::internal {

// Errors (kJob) call the file `name`.
Result<Program> read_program(std::span<const ZipEntry> entries, const std::string& name);

// The innermost frame of a Python stack trace that is the user's: not of PyTorch or of another
// installed package, if there is one that is not.
Place innermost_place(std::string_view trace);

}  // namespace muster::pt2::internal
