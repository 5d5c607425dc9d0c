// Which servers a job has, for those who only look.
#pragma once

#include <string>

#include "muster/base/clock.h"
#include "muster/base/result.h"
#include "muster/ps/server_map.h"
#include "muster/ps/server_registry.h"

namespace muster::ps {

// The newest map of a registry. Waits at most `timeout`.
Result<ServerMap> fetch_map(const std::string& registry, Duration timeout);
// What a registry knows of its servers, also before there is a map. Waits at most `timeout`.
Result<ServersStatus> fetch_servers_status(const std::string& registry, Duration timeout);

}  // namespace muster::ps
