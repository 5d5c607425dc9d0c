// What `muster status` shows, as text and as JSON. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/ps/server_registry.h"
#include "muster/roster/status.h"

#include "tools/muster/console.h"

namespace muster::cli {

// `servers`: what the registry of the job's parameter servers says; nothing: it has none, or does
// not answer (then `report.servers` is not empty).
std::string status_text(const roster::StatusReport& report, const std::string& address,
                        const std::optional<ps::ServersStatus>& servers, const Console& console);
nlohmann::ordered_json status_json(const roster::StatusReport& report, const std::string& address,
                                   const std::optional<ps::ServersStatus>& servers);

// Without each event that the next roster's event repeats: "worker 1 was removed" before "roster 3:
// worker 1 was removed".
std::vector<roster::EventLine> without_repeats(const std::vector<roster::EventLine>& events);

// "0-3, 6"
std::string lanes_text(const std::vector<int32_t>& lanes);

}  // namespace muster::cli
