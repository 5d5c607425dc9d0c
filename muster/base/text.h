// Small things about words and numbers as people write them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The candidate that `word` was most likely meant to be, or "" when none is near: at most a third
// of its letters wrong, transpositions counting once.
std::string closest(std::string_view word, std::span<const std::string> candidates);

// " (did you mean 'batch'?)", or "" when nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// "a, b and c"
std::string join_words(std::span<const std::string> words, std::string_view last = "and");
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// Whether an address SCHEME://... contains a user name or a password, which must not be printed or
// saved: '@' in front of the host. Also one with '/' in the password, as keys of S3 have.
bool has_credentials(std::string_view address);

// 1234567 -> "1,234,567"; 5.25e6 bytes -> "5.2 MB"; 75 s -> "1m15s".
std::string with_commas(uint64_t value);
// 1 -> "1 worker"; 1200 -> "1,200 workers".
std::string counted(uint64_t number, std::string_view what);
std::string human_bytes(double bytes);
std::string human_seconds(double seconds);

// The code point at `at`, which is moved behind it; kNoCodePoint, and `at` stays, for what is not
// UTF-8: cut short, longer than needed, a surrogate, or beyond the last code point.
inline constexpr uint32_t kNoCodePoint = 0x110000;
uint32_t next_code_point(std::string_view text, size_t& at);
// Bytes of the UTF-8 character that `text`, which is not empty, starts with; 0: it is none.
size_t utf8_length(std::string_view text);
std::string to_utf8(uint32_t code_point);

}  // namespace muster
