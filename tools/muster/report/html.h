// Text that is safe inside an HTML page.
#pragma once

#include <string>
#include <string_view>

namespace muster::cli::report {

// Everything that comes from a run (names, reasons, logs, jobs) goes through this: it cannot begin
// a tag, nor end an attribute in quotes. What is no UTF-8 or no character becomes U+FFFD.
std::string escaped(std::string_view text);

// "1.25 s", "80 ms", "3 min 20 s", "2 h 05 min"
std::string duration_text(double seconds);

}  // namespace muster::cli::report
