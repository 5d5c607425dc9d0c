#include "muster/store/s3_xml.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "muster/base/text.h"
#include "muster/store/http_client.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

// The text between <name> and </name>, from `from` on; nothing if they are not there. `end`, if
// given, becomes the place behind it.
std::optional<std::string_view> element(std::string_view xml, std::string_view name,
                                        size_t from = 0, size_t* end = nullptr) {
  const std::string opening = fmt::format("<{}>", name);
  const std::string closing = fmt::format("</{}>", name);
  const size_t start = xml.find(opening, from);
  if (start == std::string_view::npos) return std::nullopt;
  const size_t inside = start + opening.size();
  const size_t stop = xml.find(closing, inside);
  if (stop == std::string_view::npos) return std::nullopt;
  if (end != nullptr) *end = stop + closing.size();
  return xml.substr(inside, stop - inside);
}

// "&amp;" -> "&". What is no entity stays as it is.
std::string unescape(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kNames[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == '&' ? text.find(';', i) : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += text[i];
      continue;
    }
    const auto word = text.substr(i + 1, end - i - 1);
    const auto* named = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const auto& pair) { return pair.first == word; });
    uint32_t code = kNoCodePoint;
    if (named != std::end(kNames)) {
      code = static_cast<unsigned char>(named->second);
    } else if (word.size() > 1 && word[0] == '#') {
      const bool hex = word[1] == 'x';
      const auto digits = word.substr(hex ? 2 : 1);
      uint32_t value = 0;
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
      const bool surrogate = value >= 0xd800 && value < 0xe000;
      if (error == std::errc() && stop == digits.data() + digits.size() && !surrogate) code = value;
    }
    if (code >= kNoCodePoint) {
      out += text[i];
      continue;
    }
    out += to_utf8(code);
    i = end;
  }
  return out;
}

Error wrong(std::string_view what) {
  return Error(ErrorKind::kData, "the server's list of objects is not understood: {}", what);
}

// `url`: it has encoding-type=url, where a space is a '+' (AWS) or %20.
Result<std::string> decode_key(std::string_view text, bool url) {
  std::string plain = unescape(text);
  if (!url) return plain;
  std::replace(plain.begin(), plain.end(), '+', ' ');
  return percent_decode(plain);
}

Result<ListedKey> parse_key(std::string_view contents, bool url) {
  const auto key = element(contents, "Key");
  const auto size = element(contents, "Size");
  const auto etag = element(contents, "ETag");
  if (!key || !size) return wrong("an object has no Key or no Size");
  const auto bytes = parse_size(*size);
  if (!bytes) return wrong("a Size is not a number");
  MUSTER_TRY(auto name, decode_key(*key, url));
  return ListedKey{
      .key = std::move(name), .size = *bytes, .etag = etag ? unescape(*etag) : std::string()};
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

}  // namespace

Result<ListPage> parse_list_page(std::string_view xml) {
  if (xml.find("<ListBucketResult") == std::string_view::npos) return wrong("no ListBucketResult");
  if (xml.find("</ListBucketResult>") == std::string_view::npos) return wrong("it is cut short");
  ListPage page;
  const auto encoding = element(xml, "EncodingType");
  const bool url = encoding && *encoding == "url";
  size_t at = 0;
  while (const auto contents = element(xml, "Contents", at, &at)) {
    MUSTER_TRY(auto key, parse_key(*contents, url));
    page.keys.push_back(std::move(key));
  }
  const auto truncated = element(xml, "IsTruncated");
  page.truncated = truncated && *truncated == "true";
  if (const auto next = element(xml, "NextContinuationToken")) page.continuation = unescape(*next);
  if (page.truncated && page.continuation.empty()) {
    return wrong("there is another page, but no NextContinuationToken");
  }
  return page;
}

S3Error parse_s3_error(std::string_view xml) {
  const auto error = element(xml, "Error");
  if (!error) return {};
  const auto code = element(*error, "Code");
  const auto message = element(*error, "Message");
  return {.code = code ? one_line(unescape(*code)) : "",
          .message = message ? one_line(unescape(*message)) : ""};
}

}  // namespace muster::store
