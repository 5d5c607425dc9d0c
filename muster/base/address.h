// Where machines reach each other.
#pragma once

#include <string>

#include "muster/base/result.h"

namespace muster {

// "10.0.0.1" of "10.0.0.1:7000"; without the brackets of "[::1]:7000".
std::string host_of(const std::string& address);
// The other way round, for host + ":7000": "[::1]" of "::1", "10.0.0.1" as it is.
std::string bracketed(const std::string& host);
// "7000"
std::string port_of(const std::string& address);
// 0.0.0.0 or ::, which is every address of this machine, and nobody's to connect to.
bool is_wildcard(const std::string& host);

// This machine's address on the way to `host`. Nothing is sent.
Result<std::string> own_address_towards(const std::string& host);

// This machine's name, as far as it fits in a worker's id.
std::string machine_name();

}  // namespace muster
