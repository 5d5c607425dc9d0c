#include "muster/config/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace muster::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// from_chars does not take the plus sign that people and YAML do.
std::string_view without_plus(std::string_view text) {
  const bool plus = text.size() > 1 && text[0] == '+' && (is_digit(text[1]) || text[1] == '.');
  return plus ? text.substr(1) : text;
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  text = without_plus(text);
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end) return value;
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const auto number = parse_number(text);
  // Past 2^53 a double is no longer every whole number.
  if (!number || std::abs(*number) > 0x1p53 || std::trunc(*number) != *number) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<uint64_t> parse_uint(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  text = without_plus(text);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

bool means_null(std::string_view text) {
  constexpr std::array<std::string_view, 5> nulls = {"", "~", "null", "Null", "NULL"};
  return std::ranges::find(nulls, text) != nulls.end();
}

bool means_something(std::string_view text) {
  return means_null(text) || parse_bool(text) || parse_number(text) || parse_int(text);
}

bool can_be_plain(std::string_view text) {
  if (text.empty() || text.size() > 256) return false;
  const auto safe = [](char c) {
    return is_letter(c) || is_digit(c) ||
           std::string_view("_./+-=*^()% ").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(text, safe)) return false;
  if (text.front() == ' ' || text.back() == ' ') return false;
  if (is_letter(text[0]) || is_digit(text[0]) || text[0] == '_' || text[0] == '/') return true;
  if (text.starts_with("./") || text.starts_with("../")) return true;
  return parse_number(text).has_value();  // -1, +2, .5
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out += '"';
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  // YAML 1.1, which Python's yaml reads, takes 1e-08 for a string and 1.0e-08 for a number.
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

}  // namespace muster::config
