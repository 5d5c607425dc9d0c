#include "muster/store/s3_store.h"

#include <algorithm>

#include "muster/store/glob.h"
#include "muster/store/http_store.h"

namespace muster::store {
namespace {

constexpr size_t kMostPageBytes = size_t{64} << 20;  // of 1,000 keys, each at most 1 kB, escaped
constexpr size_t kMostPut = size_t{5} << 30;

Result<Address> s3_address(std::string_view text) {
  MUSTER_TRY(auto address, parse_address(text));
  if (address.scheme != Scheme::kS3) {
    return Error(ErrorKind::kInternal, "'{}' is not an address of S3", printable(text));
  }
  return address;
}

// "host:port" of "http://host:port" as it is sent and signed: without the scheme's own port.
std::string host_of(const std::string& root) {
  const bool tls = root.starts_with("https://");
  std::string host = root.substr(tls ? 8 : 7);
  const std::string own = tls ? ":443" : ":80";
  if (host.ends_with(own)) host.resize(host.size() - own.size());
  return host;
}

// For so long after the credentials were changed, requests with the old ones may still be answered.
constexpr Duration kAfterChange = std::chrono::minutes(1);

bool is_same(const std::optional<Credentials>& a, const std::optional<Credentials>& b) {
  if (!a || !b) return !a && !b;
  return a->key_id == b->key_id && a->secret == b->secret && a->session_token == b->session_token;
}

// Codes of errors that other credentials may mend.
bool speaks_of_credentials(std::string_view code) {
  static constexpr std::string_view kCodes[] = {"ExpiredToken",       "TokenRefreshRequired",
                                                "InvalidAccessKeyId", "InvalidToken",
                                                "InvalidTokenId",     "SignatureDoesNotMatch"};
  return std::ranges::find(kCodes, code) != std::end(kCodes);
}

// Whether the credentials were once good. MinIO no longer knows the key of a session that has
// ended; a key without a session does not end.
bool expired(std::string_view code, bool of_session) {
  if (code == "ExpiredToken" || code == "TokenRefreshRequired") return true;
  return of_session && code != "SignatureDoesNotMatch";
}

}  // namespace

BucketPlace place_of(const S3Settings& settings, const std::string& bucket) {
  if (settings.endpoint) return {.root = *settings.endpoint, .base = "/" + bucket + "/"};
  const std::string aws = fmt::format("s3.{}.amazonaws.com{}", settings.region,
                                      settings.region.starts_with("cn-") ? ".cn" : "");
  // The certificate of *.s3.amazonaws.com does not cover a name with dots.
  if (bucket.find('.') != std::string::npos) {
    return {.root = "https://" + aws, .base = "/" + bucket + "/"};
  }
  return {.root = "https://" + bucket + "." + aws, .base = "/"};
}

HttpRequest S3Store::signed_request(const std::string& method, const std::string& bucket,
                                    const std::string& key, const Query& query,
                                    std::string_view name, std::span<const std::byte> body) const {
  const auto place = place_of(settings_, bucket);
  const std::string path = place.base + percent_encode(key, true);
  const std::string query_text = canonical_query(query);
  HttpRequest request{.method = method,
                      .url = place.root + path + (query.empty() ? "" : "?") + query_text,
                      .name = std::string(name),
                      .headers = {},
                      .body = body,
                      .into = {},
                      .redirects = 0};
  const std::string host = host_of(place.root);
  request.headers.push_back("Host: " + host);
  const auto credentials = this->credentials();
  if (!credentials) return request;
  // Range and conditions are not signed: some servers refuse them so.
  SignedRequest signing{.method = method,
                        .path = path,
                        .query = query,
                        .headers = {},
                        .payload_hash = sha256_hex(body)};
  const std::string date = amz_date(clock_.wall());
  signing.headers = {
      {"host", host}, {"x-amz-content-sha256", signing.payload_hash}, {"x-amz-date", date}};
  if (!credentials->session_token.empty()) {
    signing.headers.emplace_back("x-amz-security-token", credentials->session_token);
  }
  for (const auto& [header, value] : signing.headers) {
    if (header != "host") request.headers.push_back(fmt::format("{}: {}", header, value));
  }
  request.headers.push_back(
      "Authorization: " + authorization(signing,
                                        {.date = date, .region = settings_.region, .service = "s3"},
                                        *credentials));
  return request;
}

std::optional<Credentials> S3Store::credentials() const {
  const std::scoped_lock lock(mutex_);
  return credentials_;
}

// Reads the file at most once a second, however many requests fail.
bool S3Store::renew_credentials() {
  const std::scoped_lock lock(mutex_);
  const Moment now = clock_.now();
  if (!renewed_ || now - *renewed_ >= std::chrono::seconds(1)) {
    renewed_ = now;
    // A file that is just being written may be empty or half of one: the next attempt reads it
    // again, and until then the old credentials stay.
    const auto settings = renew_();
    if (settings.ok() && settings->credentials && !is_same(settings->credentials, credentials_)) {
      credentials_ = settings->credentials;
      changed_ = now;
    }
  }
  return changed_ && now - *changed_ < kAfterChange;
}

Error S3Store::error_of(const HttpResponse& response, std::string_view name) {
  const auto [code, message] = parse_s3_error(response.body);
  std::string details = code;
  if (!message.empty()) details += (code.empty() ? "" : ": ") + message;
  if (const auto region = response.header("x-amz-bucket-region");
      !region.empty() && region != settings_.region &&
      (response.status == 301 || response.status == 400 || response.status == 307)) {
    return Error(ErrorKind::kJob, "'{}': the bucket is in region {}, not {}: set AWS_REGION={}",
                 printable(name), region, settings_.region, region);
  }
  if (code == "RequestTimeTooSkewed") {
    return Error(ErrorKind::kMachine, "'{}': the clock of this machine is wrong: {}",
                 printable(name), message);
  }
  if (renew_ && speaks_of_credentials(code)) {
    const auto used = credentials();
    const bool of_session = used && !used->session_token.empty();
    const bool changed = renew_credentials();
    if (changed || expired(code, of_session)) {
      return Error(ErrorKind::kIo,
                   "'{}': the credentials have expired ({}); renew them in ~/.aws/credentials, "
                   "which is read again",
                   printable(name), code);
    }
  }
  // Some servers say so with a status that would mean that trying again is of no use.
  if (code == "SlowDown" || code == "RequestTimeout" || code == "InternalError") {
    return Error(ErrorKind::kIo, "'{}': the server asks to try again later ({})", printable(name),
                 details);
  }
  auto error = status_error(response, name, details);
  if (response.status != 403 && response.status != 401) return error;
  return Error(error.kind(), "{}: {}", error.message(),
               settings_.credentials
                   ? "check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or "
                     "AWS_PROFILE) and the permissions"
                   : "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                     "or AWS_PROFILE");
}

Result<std::vector<Object>> S3Store::list(std::string_view text) {
  return list_stoppable(text, {});
}

Result<std::vector<Object>> S3Store::list_stoppable(std::string_view text,
                                                    const std::stop_token& stop) {
  return list_in_requests(text, make_once, stop);
}

Result<std::vector<Object>> S3Store::list_in_requests(std::string_view text,
                                                      const MakeRequest& make,
                                                      const std::stop_token& stop) {
  MUSTER_TRY(const auto address, s3_address(text));
  if (has_wildcard(address.path)) return list_glob(address, text, make, stop);
  MUSTER_TRY(auto object, answer_of(make, [&] { return look_up(address, text, stop); }));
  return std::vector{std::move(object)};
}

Result<Object> S3Store::look_up(const Address& address, std::string_view text,
                                const std::stop_token& stop) {
  MUSTER_TRY(const auto response,
             client_.perform(signed_request("HEAD", address.host, address.path, {}, text), stop));
  if (response.status == 404) {
    return Error(
        ErrorKind::kData, "there is no object '{0}'{1}", text,
        address.path.ends_with('/')
            ? fmt::format(": write '{0}*' for the objects in it, or '{0}**' for all below", text)
            : "");
  }
  if (response.status == 400 || response.status == 403) return refusal(address, text, stop);
  if (response.status != 200) return error_of(response, text);
  const auto size = parse_size(response.header("content-length"));
  if (!size) {
    return Error(ErrorKind::kData, "'{}': the server does not say how large the object is", text);
  }
  return Object{.name = std::string(text), .size = *size, .version = version_of(response)};
}

// The answer to a HEAD has no body, which is where S3 says that credentials have expired, for
// example.
Error S3Store::refusal(const Address& address, std::string_view text, const std::stop_token& stop) {
  auto request = signed_request("GET", address.host, address.path, {}, text);
  request.headers.emplace_back("Range: bytes=0-0");
  request.fill = true;
  auto response = client_.perform(request, stop);
  if (!response.ok()) return std::move(response).error();
  if (response->status >= 400 && response->status != 416) return error_of(*response, text);
  // Another thread has renewed the credentials meanwhile.
  return Error(ErrorKind::kIo, "'{}': the server refused a request, and then answered the next",
               printable(text));
}

Result<std::vector<Object>> S3Store::list_glob(const Address& address, std::string_view text,
                                               const MakeRequest& make,
                                               const std::stop_token& stop) {
  const auto glob = Glob::parse(address.path);
  if (!glob.ok()) return Error(glob.error()).context("address '{}'", text);
  std::vector<Object> found;
  std::string continuation;
  do {
    Query query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", glob->prefix()}};
    if (glob->in_one_folder()) query.emplace_back("delimiter", "/");
    if (!continuation.empty()) query.emplace_back("continuation-token", continuation);
    MUSTER_TRY(auto page,
               answer_of(make, [&] { return list_page(address.host, query, text, stop); }));
    for (auto& key : page.keys) {
      if (!glob->matches(key.key)) continue;
      found.push_back({.name = to_text({.scheme = Scheme::kS3,
                                        .tls = false,
                                        .host = address.host,
                                        .path = std::move(key.key)}),
                       .size = key.size,
                       .version = std::move(key.etag)});
    }
    if (page.truncated && page.continuation == continuation) {
      return Error(ErrorKind::kData, "{}: the server gives the same page of its list again", text);
    }
    continuation = page.truncated ? std::move(page.continuation) : "";
  } while (!continuation.empty());
  // S3 sorts so already; other servers need not.
  std::sort(found.begin(), found.end(),
            [](const Object& a, const Object& b) { return a.name < b.name; });
  // Pages of servers other than S3 may overlap when objects are added meanwhile.
  const auto same = [](const Object& a, const Object& b) { return a.name == b.name; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

Result<ListPage> S3Store::list_page(const std::string& bucket, const Query& query,
                                    std::string_view text, const std::stop_token& stop) {
  auto request = signed_request("GET", bucket, "", query, text);
  request.most_body = kMostPageBytes;
  MUSTER_TRY(const auto response, client_.perform(request, stop));
  if (response.status != 200) return error_of(response, text);
  auto page = parse_list_page(response.body);
  if (!page.ok()) return std::move(page).error().context("{}", text);
  return page;
}

Status S3Store::read(const Object& object, uint64_t offset, std::span<std::byte> into) {
  return read_stoppable(object, offset, into, {});
}

Status S3Store::read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                               const std::stop_token& stop) {
  if (into.empty()) return {};
  MUSTER_TRY(const auto address, s3_address(object.name));
  auto request = signed_request("GET", address.host, address.path, {}, object.name);
  for (auto& line : range_headers(object, offset, into.size())) {
    request.headers.push_back(std::move(line));
  }
  request.into = into;
  request.fill = true;
  request.accept_whole = offset == 0 && into.size() == object.size;
  MUSTER_TRY(const auto response, client_.perform(request, stop));
  if (response.status != 200 && response.status != 206) return error_of(response, object.name);
  return check_range(response, object, offset, into.size());
}

Result<std::optional<std::string>> S3Store::write(std::string_view text,
                                                  std::span<const std::byte> bytes,
                                                  const WriteCondition& condition) {
  return write_stoppable(text, bytes, condition, {});
}

Result<std::optional<std::string>> S3Store::write_stoppable(std::string_view text,
                                                            std::span<const std::byte> bytes,
                                                            const WriteCondition& condition,
                                                            const std::stop_token& stop) {
  MUSTER_TRY(const auto address, s3_address(text));
  if (bytes.size() > kMostPut) {
    return Error(ErrorKind::kData, "'{}': {} bytes are more than one PUT may have (5 GiB)", text,
                 bytes.size());
  }
  auto request = signed_request("PUT", address.host, address.path, {}, text, bytes);
  if (condition.kind == WriteCondition::Kind::kIfAbsent) {
    request.headers.emplace_back("If-None-Match: *");
  } else if (condition.kind == WriteCondition::Kind::kIfVersion) {
    request.headers.push_back("If-Match: " + condition.version);
  }
  MUSTER_TRY(const auto response, client_.perform(request, stop));
  const bool conditional = condition.kind != WriteCondition::Kind::kAlways;
  // If-Match on a key that does not exist is a 404.
  const bool gone = condition.kind == WriteCondition::Kind::kIfVersion && response.status == 404 &&
                    parse_s3_error(response.body).code == "NoSuchKey";
  if (conditional && (response.status == 412 || gone)) return std::optional<std::string>();
  if (response.status != 200) return error_of(response, text);
  return std::optional(version_of(response));
}

Status S3Store::remove(std::string_view text) { return remove_stoppable(text, {}); }

Status S3Store::remove_stoppable(std::string_view text, const std::stop_token& stop) {
  MUSTER_TRY(const auto address, s3_address(text));
  MUSTER_TRY(const auto response,
             client_.perform(signed_request("DELETE", address.host, address.path, {}, text), stop));
  // Some servers say so of a key that does not exist.
  const bool gone = response.status == 404 && parse_s3_error(response.body).code == "NoSuchKey";
  if (response.status == 204 || response.status == 200 || gone) return {};
  return error_of(response, text);
}

}  // namespace muster::store
