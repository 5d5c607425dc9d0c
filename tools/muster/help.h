// The words of the help pages, and how a page is laid out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace CLI {
class FormatterBase;
}

namespace muster::cli {

inline constexpr const char* kTagline =
    "Muster trains neural networks, and the same job gives the same bits.";
extern const std::string_view kWelcome;  // `muster` alone
extern const char* const kRootFooter;

// The examples at the end of a command's page; `command` as typed after muster: "config check".
std::string examples_of(std::string_view command);

std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace muster::cli
