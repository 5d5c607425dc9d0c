// Objects of HTTP servers. They cannot be listed with wildcards.
//
// The server must support ranges (RFC 9110, section 14): one that answers 200 with the whole object
// is an error, unless the whole object was asked for. A version is the ETag, or else the time of
// the last change, as the server gives them; reads ask for that version (If-Match) and check that
// the answer has it. User names and passwords come from ~/.netrc.
#pragma once

#include "muster/store/http_client.h"
#include "muster/store/store.h"

namespace muster::store {

class HttpStore final : public Store {
 public:
  explicit HttpStore(HttpOptions options = {}) : client_(std::move(options)) {}

  Result<std::vector<Object>> list(std::string_view address) override;
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override;
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override;
  Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override;

 private:
  HttpClient client_;
};

// The headers of a request for these bytes of this version of the object: Range and If-Match.
std::vector<std::string> range_headers(const Object& object, uint64_t offset, size_t length);

// Whether the answer is the range of this version of the object that was asked for; shared by the
// stores that speak HTTP. An answer that ends too early is of kind kIo.
Status check_range(const HttpResponse& response, const Object& object, uint64_t offset,
                   size_t length);

// The version that an answer names: its ETag, or else "Last-Modified: ...", or "".
std::string version_of(const HttpResponse& response);

}  // namespace muster::store
