#include "muster/config/units.h"

#include <array>
#include <cmath>
#include <utility>

#include "muster/base/text.h"
#include "muster/config/scalar.h"

namespace muster::config {
namespace {

struct Quantity {
  double value;
  std::string_view unit;  // "" if there is none
};

// "2.5 passes" as 2.5 and "passes". Nothing if there is no number in front or it is negative.
std::optional<Quantity> parse_quantity(std::string_view text) {
  text = trim(text);
  size_t end = text.find_first_not_of("0123456789.");
  if (end != std::string_view::npos && text[end] == 'e') {
    // An exponent, with or without a sign; no unit starts with an e.
    const size_t digits = text.find_first_not_of("+-", end + 1);
    end = text.find_first_not_of("0123456789", digits);
  }
  if (end == std::string_view::npos) end = text.size();
  const auto value = parse_number(text.substr(0, end));
  if (!value) return std::nullopt;
  return Quantity{*value, trim(text.substr(end))};
}

// Nothing if the unit is not one of time. Milliseconds divide, because 300 / 1000 is the double
// nearest to 0.3 and 300 * 0.001 is not.
std::optional<double> in_seconds(const Quantity& quantity) {
  if (quantity.unit == "ms") return quantity.value / 1000;
  constexpr std::array<std::pair<std::string_view, double>, 4> units = {
      {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};
  for (const auto& [name, size] : units) {
    const double value = quantity.value * size;
    if (quantity.unit == name && std::isfinite(value)) return value;
  }
  return std::nullopt;
}

constexpr double kMostExact = 0x1p53;  // up to here a double is every whole number

bool is_whole(double value) { return std::trunc(value) == value && std::abs(value) <= kMostExact; }

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  return quantity->unit.empty() ? quantity->value : in_seconds(*quantity);
}

std::string duration_text(double seconds) {
  if (is_whole(seconds) && seconds > 0) {
    if (std::fmod(seconds, 3600) == 0) return number_text(seconds / 3600) + "h";
    if (std::fmod(seconds, 60) == 0) return number_text(seconds / 60) + "m";
  }
  return number_text(seconds) + "s";
}

std::optional<Every> parse_every(std::string_view text) {
  if (trim(text) == "never") return Every{};
  const auto quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  const double value = quantity->value;
  const std::string_view unit = quantity->unit;
  const auto every = [&]() -> std::optional<Every> {
    if (unit == "step" || unit == "steps") {
      return is_whole(value) ? std::optional(Every{value, Every::Unit::kSteps}) : std::nullopt;
    }
    if (unit == "pass" || unit == "passes") return Every{value, Every::Unit::kPasses};
    if (unit.empty()) return value == 0 ? std::optional(Every{}) : std::nullopt;
    const auto seconds = in_seconds(*quantity);
    return seconds ? std::optional(Every{*seconds, Every::Unit::kSeconds}) : std::nullopt;
  }();
  // There is one way never to do something.
  return every && every->value == 0 ? Every{} : every;
}

std::string every_text(const Every& every) {
  if (every.value == 0) return "never";
  switch (every.unit) {
    case Every::Unit::kSteps:
      return fmt::format("{} {}", number_text(every.value), every.value == 1 ? "step" : "steps");
    case Every::Unit::kPasses:
      return fmt::format("{} {}", number_text(every.value), every.value == 1 ? "pass" : "passes");
    case Every::Unit::kSeconds:
      return duration_text(every.value);
  }
  return "never";
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, double>, 8> units = {{{"", 1},
                                                                         {"B", 1},
                                                                         {"kB", 1e3},
                                                                         {"MB", 1e6},
                                                                         {"GB", 1e9},
                                                                         {"KiB", 0x1p10},
                                                                         {"MiB", 0x1p20},
                                                                         {"GiB", 0x1p30}}};
  for (const auto& [name, size] : units) {
    const double bytes = quantity->value * size;
    if (quantity->unit == name && is_whole(bytes)) return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<std::pair<const char*, int64_t>, 3> units = {
      {{"GiB", int64_t{1} << 30}, {"MiB", int64_t{1} << 20}, {"KiB", int64_t{1} << 10}}};
  for (const auto& [name, size] : units) {
    if (bytes > 0 && bytes % size == 0) return fmt::format("{}{}", bytes / size, name);
  }
  return fmt::format("{}", bytes);
}

}  // namespace muster::config
