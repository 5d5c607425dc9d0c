// What `muster status` shows, as text and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/roster/status.h"

#include "tools/muster/console.h"

namespace muster::cli {

std::string status_text(const roster::StatusReport& report, const std::string& address,
                        const Console& console);
nlohmann::ordered_json status_json(const roster::StatusReport& report, const std::string& address);

// Without each event that the next roster's event repeats: "worker 1 was removed" before "roster 3:
// worker 1 was removed".
std::vector<roster::EventLine> without_repeats(const std::vector<roster::EventLine>& events);

// "0-3, 6"
std::string lanes_text(const std::vector<int32_t>& lanes);

}  // namespace muster::cli
