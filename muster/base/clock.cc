#include "muster/base/clock.h"

#include <ctime>

namespace muster {

std::string utc_timestamp(WallTime t, bool for_file_name) {
  const auto since_epoch = std::chrono::floor<std::chrono::seconds>(t.time_since_epoch());
  const std::time_t time = since_epoch.count();
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), for_file_name ? "%Y%m%d-%H%M%S" : "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace muster
