#include "muster/store/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>

#include <fmt/format.h>

#include "muster/base/check.h"
#include "muster/base/text.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
using Digest = std::array<unsigned char, 32>;

std::string hex(const Digest& digest) { return fmt::format("{:02x}", fmt::join(digest, "")); }

Digest sha256(const void* data, size_t size) {
  Digest digest{};
  const int done = EVP_Digest(data, size, digest.data(), nullptr, EVP_sha256(), nullptr);
  MUSTER_CHECK(done == 1, "libcrypto has no SHA-256");
  return digest;
}

Digest hmac(std::span<const unsigned char> key, std::string_view text) {
  Digest digest{};
  const auto* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          digest.data(), nullptr);
  MUSTER_CHECK(done != nullptr, "libcrypto has no HMAC");
  return digest;
}

// Values without spaces around, and runs of spaces as one.
std::string folded(std::string_view value) {
  std::string out;
  for (const char c : trim(value)) {
    if (c == ' ' && out.ends_with(' ')) continue;
    out += c;
  }
  return out;
}

// No name is there twice.
std::vector<std::pair<std::string, std::string>> sorted_headers(const SignedRequest& request) {
  auto headers = request.headers;
  std::ranges::sort(headers);
  return headers;
}

std::string signed_names(const SignedRequest& request) {
  std::string names;
  for (const auto& [name, value] : sorted_headers(request)) {
    if (!names.empty()) names += ';';
    names += name;
  }
  return names;
}

}  // namespace

std::string canonical_query(std::vector<std::pair<std::string, std::string>> query) {
  for (auto& [name, value] : query) {
    name = percent_encode(name, false);
    value = percent_encode(value, false);
  }
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    out += fmt::format("{}={}", name, value);
  }
  return out;
}

std::string canonical_request(const SignedRequest& request) {
  std::string out =
      request.method + "\n" + request.path + "\n" + canonical_query(request.query) + "\n";
  for (const auto& [name, value] : sorted_headers(request))
    out += name + ":" + folded(value) + "\n";
  return out + "\n" + signed_names(request) + "\n" + request.payload_hash;
}

std::string authorization(const SignedRequest& request, const SigningScope& scope,
                          const Credentials& credentials) {
  const std::string day = scope.date.substr(0, 8);
  const std::string where = day + "/" + scope.region + "/" + scope.service + "/aws4_request";
  const std::string text = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, scope.date, where,
                                       sha256_hex(canonical_request(request)));
  const std::string start = "AWS4" + credentials.secret;
  Digest key = hmac({reinterpret_cast<const unsigned char*>(start.data()), start.size()}, day);
  for (const std::string_view word :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request")}) {
    key = hmac(key, word);
  }
  return fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                     credentials.key_id, where, signed_names(request), hex(hmac(key, text)));
}

std::string amz_date(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch();
  const auto at = static_cast<std::time_t>(whole.count());
  std::tm utc{};
  gmtime_r(&at, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string sha256_hex(std::span<const std::byte> data) {
  return hex(sha256(data.data(), data.size()));
}
std::string sha256_hex(std::string_view text) { return hex(sha256(text.data(), text.size())); }

}  // namespace muster::store
