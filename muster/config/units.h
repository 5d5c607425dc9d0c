// Quantities as people write them in a job file, and back. Reading what was written gives exactly
// the same value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "muster/config/job.h"

namespace muster::config {

// "90s", "300ms", "5m", "2h", "1d"; a bare number is seconds. In seconds, not negative.
std::optional<double> parse_duration(std::string_view text);
std::string duration_text(double seconds);

// "500 steps", "1 pass", "0.5 passes", a duration with its unit, or "never" (also 0).
std::optional<Every> parse_every(std::string_view text);
std::string every_text(const Every& every);

// "1048576", "1MB" (1,000,000), "512KiB" (512 * 1,024).
std::optional<int64_t> parse_bytes(std::string_view text);
std::string bytes_text(int64_t bytes);

// The same languages as regular expressions for the JSON schema. A little wider: the numbers are
// not checked for size.
inline constexpr const char* kDurationPattern = R"(^[0-9.]+(e[+-]?[0-9]+)? ?(ms|s|m|h|d)?$)";
inline constexpr const char* kEveryPattern =
    R"(^(never|0|[0-9.]+(e[+-]?[0-9]+)? ?(step|steps|pass|passes|ms|s|m|h|d))$)";
inline constexpr const char* kBytesPattern =
    R"(^[0-9.]+(e[+-]?[0-9]+)? ?(B|kB|MB|GB|KiB|MiB|GiB)?$)";

}  // namespace muster::config
