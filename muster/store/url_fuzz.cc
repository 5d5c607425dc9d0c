// Any bytes as an address and as a pattern: read or refused with a sentence. What is read must be
// written such that it reads back equal, and a pattern without wildcards matches itself alone.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "muster/base/check.h"
#include "muster/store/glob.h"
#include "muster/store/url.h"

using namespace muster::store;  // NOLINT: a program of one file

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto address = parse_address(text);
  if (address.ok()) {
    const auto again = parse_address(to_text(*address));
    MUSTER_CHECK(again.ok(), again.error().message());
    const bool dotted = address->scheme == Scheme::kFile && again->path == "./" + address->path;
    MUSTER_CHECK(*again == *address || dotted, text);
  } else {
    MUSTER_CHECK(!address.error().message().empty(), "an error says something");
  }
  MUSTER_CHECK(*percent_decode(percent_encode(text, false)) == text, text);
  (void)percent_decode(text).ok();

  // The first line is the pattern, the rest the name.
  const size_t end = text.find('\n');
  const auto glob = Glob::parse(std::string_view(text).substr(0, end));
  if (!glob.ok()) return 0;
  const auto name = end == std::string::npos ? text : text.substr(end + 1);
  const bool matches = glob->matches(name);
  MUSTER_CHECK(!matches || name.starts_with(glob->prefix()), name);
  if (!has_wildcard(text.substr(0, end))) {
    MUSTER_CHECK(matches == (name == text.substr(0, end)), name);
  }
  return 0;
}
