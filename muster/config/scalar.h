// What a YAML scalar is besides a string, and how a string must be written so that it stays one.
// Only for the files of this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::config {

// The whole text as a decimal whole number ("12", "-3", also "1e5"), or nothing.
std::optional<int64_t> parse_int(std::string_view text);
// The same for 0 to 2^64 - 1, digits only.
std::optional<uint64_t> parse_uint(std::string_view text);
// The whole text as a finite decimal number, or nothing. Nothing too for what a double cannot hold.
std::optional<double> parse_number(std::string_view text);
// true or false, as YAML's core schema writes them.
std::optional<bool> parse_bool(std::string_view text);

// Whether `text` without quotes would be read as a null: nothing, ~, null.
bool means_null(std::string_view text);
// Whether `text` without quotes would be read as a null, a number or a bool.
bool means_something(std::string_view text);
// Whether `text` can stand without quotes anywhere, also inside { } and [ ]. Errs towards quotes.
bool can_be_plain(std::string_view text);
// In double quotes, on one line.
std::string quote(std::string_view text);

// The shortest text that reads back as exactly this double: 0.1, 5, 1.0e-08.
std::string number_text(double value);

}  // namespace muster::config
