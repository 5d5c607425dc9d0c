#include "muster/store/url.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "muster/base/text.h"

namespace muster::store {
namespace {

// Not std::isalnum: that one asks the locale.
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// The text with control characters as '?', so that an error is one line.
std::string shown(std::string_view text) {
  std::string out(printable(text));
  std::replace_if(out.begin(), out.end(), is_control, '?');
  return out;
}

template <typename... Args>
Error wrong(std::string_view text, fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::kJob, format, std::forward<Args>(args)...)
      .context("address '{}'", shown(text));
}

// "s3" of "s3://...", if it has the form of a scheme.
std::optional<std::string_view> scheme_of(std::string_view text) {
  const size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0 || !is_letter(text[0])) return std::nullopt;
  const auto name = text.substr(0, end);
  const bool good = std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
  });
  if (!good) return std::nullopt;
  return name;
}

Status check_port(std::string_view text, std::string_view port) {
  int value = 0;
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (code != std::errc() || end != port.data() + port.size() || value < 1 || value > 65535) {
    return wrong(text, "'{}' is not a port: write a number from 1 to 65535 after the ':'",
                 shown(port));
  }
  return {};
}

// HOST, HOST:PORT, [IPV6], [IPV6]:PORT.
Status check_host(std::string_view text, std::string_view host) {
  std::string_view name = host;
  std::string_view rest;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return wrong(text, "the '[' of the host has no ']'");
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') {
      return wrong(text, "'{}' after the host is not understood: write [ADDRESS]:PORT",
                   shown(rest));
    }
    const bool good = std::all_of(name.begin(), name.end(),
                                  [](char c) { return is_hex(c) || c == ':' || c == '.'; });
    if (!good) return wrong(text, "'[{}]' is not an IPv6 address", shown(name));
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    rest = host.substr(colon);
  }
  if (name.empty()) return wrong(text, "the host is missing after '://'");
  if (!host.starts_with('[')) {
    const auto bad = std::find_if(name.begin(), name.end(), [](char c) {
      return !is_letter(c) && !is_digit(c) && c != '-' && c != '.' && c != '_';
    });
    if (bad != name.end()) {
      return wrong(text, "the host '{}' contains '{}', which no host name does", shown(name),
                   shown({&*bad, 1}));
    }
  }
  if (!rest.empty()) MUSTER_RETURN_IF_ERROR(check_port(text, rest.substr(1)));
  return {};
}

// `rest`: what follows "http://".
Result<Address> parse_http(std::string_view text, std::string_view rest, bool tls) {
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  MUSTER_RETURN_IF_ERROR(check_host(text, rest.substr(0, end)));
  std::string_view path = rest.substr(end);
  if (path.find('#') != std::string_view::npos) {
    return wrong(text, "a '#' is never sent to a server: write %23 if the name contains it");
  }
  for (size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (c == ' ' || static_cast<unsigned char>(c) >= 0x80) {
      return wrong(text, "byte {} of the path is a {}: write it as %{:02X}", i,
                   c == ' ' ? "space" : "byte outside ASCII", static_cast<unsigned char>(c));
    }
    if (c == '%' && (i + 2 >= path.size() || !is_hex(path[i + 1]) || !is_hex(path[i + 2]))) {
      return wrong(text, "byte {} of the path is a '%' without two hexadecimal digits: write %25",
                   i);
    }
  }
  std::string full(path);
  if (!full.starts_with('/')) full.insert(0, "/");
  return Address{.scheme = Scheme::kHttp,
                 .tls = tls,
                 .host = std::string(rest.substr(0, end)),
                 .path = std::move(full)};
}

Result<Address> parse_s3(std::string_view text, std::string_view rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  const auto bucket = rest.substr(0, slash);
  if (bucket.empty()) return wrong(text, "the bucket is missing: write s3://BUCKET/KEY");
  const auto bad = std::find_if(bucket.begin(), bucket.end(), [](char c) {
    return !is_letter(c) && !is_digit(c) && c != '-' && c != '.' && c != '_';
  });
  if (bad != bucket.end()) {
    return wrong(text, "the bucket '{}' contains '{}', which no bucket's name does", shown(bucket),
                 shown({&*bad, 1}));
  }
  if (bucket == "." || bucket == "..") return wrong(text, "'{}' is no bucket", bucket);
  const auto key = rest.substr(std::min(slash + 1, rest.size()));
  if (key.empty()) {
    return wrong(text, "the key is missing: write s3://{0}/KEY, or s3://{0}/** for all objects",
                 bucket);
  }
  return Address{
      .scheme = Scheme::kS3, .tls = false, .host = std::string(bucket), .path = std::string(key)};
}

Result<Address> parse_webhdfs(std::string_view text, std::string_view rest, bool tls) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  const auto host = rest.substr(0, slash);
  MUSTER_RETURN_IF_ERROR(check_host(text, host));
  const auto path = rest.substr(slash);
  if (path.size() < 2) {
    return wrong(text, "the path is missing: write {}://{}/PATH", tls ? "swebhdfs" : "webhdfs",
                 host);
  }
  for (const auto& name : split(path.substr(1), '/')) {
    if (name == "." || name == "..") {
      return wrong(text, "WebHDFS does not know '{}' in a path: write the path without it", name);
    }
  }
  return Address{
      .scheme = Scheme::kWebHdfs, .tls = tls, .host = std::string(host), .path = std::string(path)};
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.empty()) return Error(ErrorKind::kJob, "the address of the data is empty");
  // Before anything else: other errors print the address.
  if (has_credentials(text)) {
    return Error(ErrorKind::kJob,
                 "an address may not contain a user name, a password or a key ('@' before the "
                 "host): put them into ~/.netrc, or into ~/.aws/credentials for S3");
  }
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  if (control != text.end()) {
    return wrong(text, "byte {} is a control character (0x{:02x}); remove it",
                 control - text.begin(), static_cast<unsigned char>(*control));
  }
  const auto scheme = scheme_of(text);
  if (!scheme) {
    return Address{.scheme = Scheme::kFile, .tls = false, .host = "", .path = std::string(text)};
  }
  const auto rest = text.substr(scheme->size() + 3);
  if (*scheme == "file") {
    if (!rest.starts_with('/')) {
      return wrong(text, "after file:// an absolute path is needed: file:///PATH");
    }
    return Address{.scheme = Scheme::kFile, .tls = false, .host = "", .path = std::string(rest)};
  }
  if (*scheme == "http") return parse_http(text, rest, false);
  if (*scheme == "https") return parse_http(text, rest, true);
  if (*scheme == "s3") return parse_s3(text, rest);
  if (*scheme == "webhdfs") return parse_webhdfs(text, rest, false);
  if (*scheme == "swebhdfs") return parse_webhdfs(text, rest, true);
  if (*scheme == "hdfs") {
    return wrong(text,
                 "HDFS is read through WebHDFS: write webhdfs://NAMENODE:PORT/PATH with the HTTP "
                 "port of the name node (9870 by default)");
  }
  if (*scheme == "s3a" || *scheme == "s3n")
    return wrong(text, "write s3:// instead of {}://", *scheme);
  const std::array<std::string, 6> known = {"http", "https", "s3", "webhdfs", "swebhdfs", "file"};
  return wrong(text, "'{}://' is not supported{}; write a path, or an address with {}", *scheme,
               did_you_mean(*scheme, known), join_words(known, "or"));
}

std::string to_text(const Address& address) {
  switch (address.scheme) {
    case Scheme::kFile:
      // A relative path that looks like an address can only be meant if a directory is named so.
      return scheme_of(address.path) ? "./" + address.path : address.path;
    case Scheme::kHttp:
      return (address.tls ? "https://" : "http://") + address.host + address.path;
    case Scheme::kS3:
      return "s3://" + address.host + "/" + address.path;
    case Scheme::kWebHdfs:
      return (address.tls ? "swebhdfs://" : "webhdfs://") + address.host + address.path;
  }
  return {};
}

bool is_local(std::string_view text) {
  const auto scheme = scheme_of(text);
  return !scheme || *scheme == "file";
}

std::string printable(std::string_view address) {
  static constexpr std::string_view kWithoutQuery[] = {"s3", "webhdfs", "swebhdfs", "file"};
  const auto scheme = scheme_of(address);
  const size_t query = address.find('?');
  // In an address of these a '?' is a wildcard. Any other scheme may be http, written wrongly.
  const bool has_none =
      !scheme || std::ranges::find(kWithoutQuery, *scheme) != std::end(kWithoutQuery);
  if (has_none || query == std::string_view::npos) return std::string(address);
  return std::string(address.substr(0, query)) + "?...";
}

std::string percent_encode(std::string_view bytes, bool keep_slash) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) {
    const bool plain = is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' ||
                       c == '~' || (c == '/' && keep_slash);
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) {
      return Error(ErrorKind::kData, "byte {} is a '%' without two hexadecimal digits", i);
    }
    unsigned value = 0;
    std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

}  // namespace muster::store
