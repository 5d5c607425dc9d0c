// Words for POSIX shells.
#pragma once

#include <string>

namespace muster {

// In single quotes, so that a shell takes it as one word, whatever is in it.
std::string shell_quoted(const std::string& word);

}  // namespace muster
