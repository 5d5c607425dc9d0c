// HTTP requests by libcurl, on connections that are kept open between requests.
//
// Each request under way has a connection of its own, so a second request for the same thing does
// not wait behind the first one. There is no thread here: a request runs on its caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/result.h"

namespace muster::store {

struct HttpOptions {
  Duration connect_timeout = std::chrono::seconds(10);
  // A request that is slower than kSlowest for that long has stalled and fails (kIo), also one that
  // still receives a few bytes now and then. Whole seconds, at least one.
  Duration stall_timeout = std::chrono::seconds(20);
  static constexpr int64_t kSlowest = 1000;  // bytes per second, received or sent
  // Certificates to trust instead of the system's. Empty: the system's.
  std::string ca_file;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::string name;                  // for errors: what the user calls it
  std::vector<std::string> headers;  // "Name: value"; "Host" replaces libcurl's own
  std::span<const std::byte> body;   // PUT

  // Where the body of a 206 goes; what does not fit is an error. The rest of the answers' bodies go
  // to HttpResponse::body.
  std::span<std::byte> into;
  bool fill = false;                     // use `into`, which may be empty
  bool accept_whole = false;             // the body of a 200 goes there too
  size_t most_body = size_t{64} * 1024;  // of HttpResponse::body; the rest is dropped
  int redirects = 5;                     // to follow; never from HTTPS to HTTP
  bool netrc = false;                    // take user and password from ~/.netrc, if it has the host
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  size_t filled = 0;       // bytes of `into`
  bool unwanted = false;   // a 200 that was not accepted: its body was not read
  bool overflow = false;   // more bytes than `into` holds
  bool truncated = false;  // body is longer than most_body

  // Empty if there is none.
  std::string_view header(const std::string& lower_case_name) const;
};

// Safe for concurrent use.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any complete answer, whatever its status. Errors: no answer (kIo), a certificate that is not
  // trusted (kMachine), redirects that are not followed (kData), stopped (kInterrupted).
  Result<HttpResponse> perform(const HttpRequest& request, const std::stop_token& stop = {});

 private:
  struct Connection;
  class Pool;
  HttpOptions options_;
  std::unique_ptr<Pool> pool_;
};

// The error that a status other than success means for this object: kData if it is gone or changed,
// kMachine if this machine's credentials do not give access to it, kIo if the server asks to try
// again later. `details`: from the body, may be empty.
Error status_error(const HttpResponse& response, std::string_view name, std::string_view details);

// "bytes 0-99/1234" -> first, last and size of the whole.
struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size = 0;
  bool operator==(const ContentRange&) const = default;
};
std::optional<ContentRange> parse_content_range(std::string_view text);
// A number of decimal digits alone.
std::optional<uint64_t> parse_size(std::string_view text);

}  // namespace muster::store
