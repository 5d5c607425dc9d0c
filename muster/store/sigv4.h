// Signatures of requests to S3: AWS Signature Version 4, in the header Authorization.
//
// Pure functions. libcurl has this too, but 7.88 signs keys that contain '=' and unsorted queries
// wrongly.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/base/clock.h"

namespace muster::store {

// Never printed, never part of an error.
struct Credentials {
  std::string key_id;
  std::string secret;
  std::string session_token;  // empty: none
};

struct SignedRequest {
  std::string method;
  std::string path;  // percent-encoded, beginning with '/'
  // Names and values, not encoded, in any order.
  std::vector<std::pair<std::string, std::string>> query;
  // Those that are signed: lower-case names, in any order. `host` and `x-amz-date` must be there.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string payload_hash;  // SHA-256 of the body, hexadecimal, or "UNSIGNED-PAYLOAD"
};

struct SigningScope {
  std::string date;  // "20150830T123600Z", as in x-amz-date
  std::string region;
  std::string service;  // "s3"
};

// The value of the header Authorization.
std::string authorization(const SignedRequest& request, const SigningScope& scope,
                          const Credentials& credentials);
// What is signed, step by step; for tests.
std::string canonical_request(const SignedRequest& request);

// "a=1&b=", percent-encoded and sorted: as it is signed, and as it must be sent.
std::string canonical_query(std::vector<std::pair<std::string, std::string>> query);
// "20150830T123600Z"
std::string amz_date(WallTime time);

std::string sha256_hex(std::span<const std::byte> data);
std::string sha256_hex(std::string_view text);

}  // namespace muster::store
