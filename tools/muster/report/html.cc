#include "tools/muster/report/html.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "muster/base/text.h"

namespace muster::cli::report {

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code = next_code_point(text, at);
    // The last two ranges turn the direction of text around, also of what follows.
    const bool is_control = (code < 0x20 && code != '\n' && code != '\t') ||
                            (code >= 0x7f && code < 0xa0) || code == 0xfffe || code == 0xffff ||
                            (code >= 0x202a && code <= 0x202e) ||
                            (code >= 0x2066 && code <= 0x2069);
    // Where nothing was read, one byte is passed over.
    if (at == begin) ++at;
    const bool is_broken = at == begin + 1 && code > 0x7f;
    if (is_broken || is_control) {
      out += "\xef\xbf\xbd";
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else if (code == '"') {
      out += "&quot;";
    } else if (code == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  return out;
}

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e12;  // 30,000 years
  if (!(seconds >= 0 && seconds < kLongest)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

}  // namespace muster::cli::report
