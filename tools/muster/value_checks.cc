#include "tools/muster/value_checks.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "muster/base/text.h"

namespace muster::cli {
namespace {

template <typename Number>
bool parses_as(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& choices) {
  const auto check = [choices](const std::string& value) {
    if (std::ranges::find(choices, value) != choices.end()) return std::string();
    return fmt::format("must be {}, not '{}'{}", join_words(choices, "or"), value,
                       did_you_mean(value, choices));
  };
  return CLI::Validator(check, "");
}

CLI::Validator whole_number(int64_t least) {
  const auto check = [least](const std::string& text) {
    int64_t value = 0;
    if (parses_as(text, value) && value >= least) return std::string();
    return fmt::format("must be a whole number, at least {}, not '{}'", least, text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator positive_number() {
  const auto check = [](const std::string& text) {
    double value = 0;
    if (parses_as(text, value) && value >= 0 && value <= 1e6) return std::string();
    return fmt::format("must be a number, at least 0, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator checkpoint_name() {
  const auto check = [](const std::string& text) {
    int64_t step = 0;
    if (text == "best" || text == "newest" || (parses_as(text, step) && step >= 0)) {
      return std::string();
    }
    return fmt::format("must be best, newest or the number of a step, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator sample_list() {
  const auto is_range = [](const std::string& text) {
    const auto parts = split(text, '-');
    uint64_t first = 0;
    uint64_t last = 0;
    return parts.size() <= 2 && parses_as(parts.front(), first) && parses_as(parts.back(), last) &&
           first <= last;
  };
  const auto check = [is_range](const std::string& text) {
    const auto ranges = split(text, ',');
    if (std::ranges::all_of(ranges, is_range)) return std::string();
    return fmt::format("must be numbers or ranges such as 0-9 or 1,5,8-10, not '{}'", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator worker_id() {
  const auto check = [](const std::string& text) {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '_' || c == '-';
    };
    if (!text.empty() && text.size() <= 100 && text[0] != '.' && std::ranges::all_of(text, plain)) {
      return std::string();
    }
    return fmt::format("must be letters, digits, '-', '_' and '.', not '{}'", text);
  };
  return CLI::Validator(check, "");
}

}  // namespace muster::cli
