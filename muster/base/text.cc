#include "muster/base/text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace muster {
namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(previous.begin(), previous.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

}  // namespace

std::string closest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string best = closest(word, candidates);
  return best.empty() ? "" : fmt::format(" (did you mean '{}'?)", best);
}

std::string join_words(std::span<const std::string> words, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? fmt::format(" {} ", last) : ", ";
    text += words[i];
  }
  return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

bool has_credentials(std::string_view address) {
  const size_t end = address.find("://");
  if (end == std::string_view::npos || end == 0) return false;
  const auto scheme = address.substr(0, end);
  if (scheme.find_first_of("/\\ ") != std::string_view::npos) return false;  // a path
  const auto rest = address.substr(end + 3);
  auto host = rest.substr(0, rest.find_first_of("/?#"));
  if (host.find('@') != std::string_view::npos) return true;
  if (rest.find('@') == std::string_view::npos) return false;
  // NAME:PASS/WORD@HOST: what looks like a port is none.
  if (host.starts_with('[')) host.remove_prefix(std::min(host.find(']'), host.size()));
  const size_t colon = host.find(':');
  if (colon == std::string_view::npos) return false;
  const auto port = host.substr(colon + 1);
  const bool is_number = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  return !is_number || scheme.starts_with("s3");
}

std::string_view trim(std::string_view text) {
  const char* space = " \t\r\n";
  const size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

std::string with_commas(uint64_t value) {
  std::string digits = fmt::format("{}", value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string counted(uint64_t number, std::string_view what) {
  return fmt::format("{} {}{}", with_commas(number), what, number == 1 ? "" : "s");
}

std::string human_bytes(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return ++at, lead;
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at <= static_cast<size_t>(more)) {
    return kNoCodePoint;
  }
  uint32_t code = lead & (0x3f >> more);
  for (int i = 1; i <= more; ++i) {
    const uint8_t next = byte(at + static_cast<size_t>(i));
    if ((next & 0xc0) != 0x80) return kNoCodePoint;
    code = code << 6 | (next & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[more] || code >= kNoCodePoint || (code >= 0xd800 && code < 0xe000)) {
    return kNoCodePoint;
  }
  at += static_cast<size_t>(more) + 1;
  return code;
}

size_t utf8_length(std::string_view text) {
  size_t at = 0;
  (void)next_code_point(text, at);
  return at;
}

std::string to_utf8(uint32_t code_point) {
  const auto byte = [](uint32_t bits) { return static_cast<char>(bits); };
  const auto tail = [&](int shift) { return byte(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xc0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {byte(0xe0 | code_point >> 12), tail(6), tail(0)};
  return {byte(0xf0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace muster
