#include "muster/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace muster {

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "muster: bug: %s:%d: %s does not hold: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace muster
