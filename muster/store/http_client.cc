#include "muster/store/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>

#include "muster/base/text.h"
#include "muster/store/store.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

// libcurl calls on_body once per buffer.
constexpr long kReceiveBuffer = 512L * 1024;

// libcurl wants this once per process, before the first handle.
void init_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// What libcurl's callbacks work on.
struct Exchange {
  const HttpRequest& request;
  HttpResponse response;
};

// One header line. A status line starts an answer (a redirect, a 100 Continue) from scratch.
size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line = trim({data, size * count});
  if (line.starts_with("HTTP/")) {
    exchange.response = {};
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      std::from_chars(line.data() + space + 1, line.data() + line.size(), exchange.response.status);
    }
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    exchange.response.headers[lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
  }
  return size * count;
}

// Returning another count than was given ends the transfer.
size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& [request, response] = *static_cast<Exchange*>(user);
  const size_t bytes = size * count;
  if (request.fill && response.status == 200 && !request.accept_whole) {
    response.unwanted = true;
    return 0;
  }
  if (request.fill && (response.status == 206 || response.status == 200)) {
    if (bytes > request.into.size() - response.filled) {
      response.overflow = true;
      return 0;
    }
    std::memcpy(request.into.data() + response.filled, data, bytes);
    response.filled += bytes;
    return bytes;
  }
  const size_t kept = std::min(bytes, request.most_body - response.body.size());
  response.body.append(data, kept);
  if (kept < bytes) response.truncated = true;
  return bytes;
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

HeaderList header_list(const HttpRequest& request) {
  HeaderList list;
  const auto add = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    MUSTER_CHECK(longer != nullptr, "out of memory");
    if (!list) list.reset(longer);  // otherwise the same head
  };
  // Otherwise a server may send compressed bytes, whose offsets are other ones.
  add("Accept-Encoding: identity");
  add("Accept:");
  add("Expect:");
  if (request.method == "PUT") add("Content-Type: application/octet-stream");
  for (const auto& line : request.headers) add(line);
  return list;
}

// `url` is that of the last redirect, if there was one.
Error transport_error(CURLcode code, const char* details, const HttpRequest& request,
                      std::string_view url) {
  const std::string name = printable(request.name);
  const std::string why = *details != '\0' ? details : curl_easy_strerror(code);
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Error(ErrorKind::kMachine,
                   "{}: the server's certificate is not trusted ({}): name the file with your "
                   "authority's certificate in SSL_CERT_FILE",
                   name, why);
    case CURLE_UNSUPPORTED_PROTOCOL:
      if (lower(request.url).starts_with("https:") && lower(url).starts_with("http:")) {
        return Error(ErrorKind::kData,
                     "{}: the server redirects from https to http, which is not followed; if the "
                     "data need not be secret, write an address that begins with http://",
                     name);
      }
      // Also libcurl's word for an answer that does not begin with "HTTP/", such as the rest of an
      // earlier one behind a proxy that lost bytes. Another connection may be in order.
      if (url.starts_with("http:") || url.starts_with("https:")) {
        return Error(ErrorKind::kIo, "{}: the server's answer is not one of HTTP: {}", name, why);
      }
      [[fallthrough]];
    case CURLE_URL_MALFORMAT:
      return Error(ErrorKind::kJob, "{}: not an address that can be requested: {}", name, why);
    case CURLE_TOO_MANY_REDIRECTS:
      return Error(ErrorKind::kData, "{}: the server redirects more than {} times", name,
                   request.redirects);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return Error(ErrorKind::kIo, "{}: the server cannot be reached: {}", name, why);
    default:
      return Error(ErrorKind::kIo, "{}: the connection failed: {}", name, why);
  }
}

}  // namespace

// A handle with the connections it keeps open. The multi handle is there because it can be woken by
// another thread, which is how a request is stopped at once.
struct HttpClient::Connection {
  CURL* easy = curl_easy_init();
  CURLM* multi = curl_multi_init();

  Connection() { MUSTER_CHECK(easy != nullptr && multi != nullptr, "libcurl gives no handle"); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
};

class HttpClient::Pool {
 public:
  // The one that was used last: its connection is the most likely to be still open.
  std::unique_ptr<Connection> take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return std::make_unique<Connection>();
  }
  void put(std::unique_ptr<Connection> connection) {
    curl_easy_reset(connection->easy);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(connection));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

std::string_view HttpResponse::header(const std::string& lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::string_view() : found->second;
}

HttpClient::HttpClient(HttpOptions options) : options_(std::move(options)) {
  init_curl();
  pool_ = std::make_unique<Pool>();
}
HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::perform(const HttpRequest& request, const std::stop_token& stop) {
  auto connection = pool_->take();
  CURL* easy = connection->easy;
  CURLM* multi = connection->multi;
  Exchange exchange{.request = request, .response = {}};
  const HeaderList headers = header_list(request);
  char details[CURL_ERROR_SIZE] = "";
  const auto stall = std::chrono::ceil<std::chrono::seconds>(options_.stall_timeout);
  const auto connect = std::chrono::ceil<std::chrono::milliseconds>(options_.connect_timeout);

  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, details);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);  // a stop does not wait for a name server
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);  // a key may contain "..", and is signed so
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // What was asked for over TLS is not read without it, nor is a password sent to another host.
  const bool tls = request.url.starts_with("https://");
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
  curl_easy_setopt(easy, CURLOPT_UNRESTRICTED_AUTH, 0L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, request.redirects > 0 ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, static_cast<long>(request.redirects));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count()));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(HttpOptions::kSlowest));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall.count()));
  if (request.netrc) curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
  if (!options_.ca_file.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_file.c_str());
  }
  if (request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, reinterpret_cast<const char*>(request.body.data()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }

  CURLcode code = CURLE_OK;
  bool stopped = false;
  {
    const std::stop_callback wake(stop, [multi] { curl_multi_wakeup(multi); });
    curl_multi_add_handle(multi, easy);
    int running = 1;
    while (true) {
      if (curl_multi_perform(multi, &running) != CURLM_OK) code = CURLE_FAILED_INIT;
      if (running == 0 || code != CURLE_OK) break;
      // A wake-up between this line and the next is not lost: the poll then returns at once.
      stopped = stop.stop_requested();
      if (stopped) break;
      curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) code = message->data.result;
    }
    curl_multi_remove_handle(multi, easy);
  }
  std::string last_url;
  if (code == CURLE_UNSUPPORTED_PROTOCOL) {
    const char* text = nullptr;
    curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &text);
    if (text != nullptr) last_url = text;
  }
  pool_->put(std::move(connection));

  if (stopped) {
    return Error(ErrorKind::kInterrupted, "{}: the request was stopped", printable(request.name));
  }
  const bool own_end = exchange.response.unwanted || exchange.response.overflow;
  if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && own_end)) {
    return transport_error(code, details, request, last_url);
  }
  return std::move(exchange.response);
}

Error status_error(const HttpResponse& response, std::string_view name, std::string_view details) {
  const std::string shown = printable(name);
  const std::string because = details.empty() ? "" : fmt::format(" ({})", details);
  switch (response.status) {
    case 404:
    case 410:
      return Error(ErrorKind::kData, "there is no '{}': the server answered {}{}", shown,
                   response.status, because);
    case 401:
    case 403:
      // Nothing is wrong with the object, and other machines may have other credentials.
      return Error(ErrorKind::kMachine, "'{}' may not be accessed: the server answered {}{}", shown,
                   response.status, because);
    case 412:
    case 416:
      return Error(
          ErrorKind::kData,
          "'{}' was changed since it was listed (the server answered {}{}): restore it, or {}",
          shown, response.status, because, kUseNewData);
    case 408:
    case 409:
    case 425:
    case 429:
      return Error(ErrorKind::kIo, "'{}': the server asks to slow down: {}{}", shown,
                   response.status, because);
    case 501:
    case 505:
      return Error(ErrorKind::kData, "'{}': the server does not support this request: {}{}", shown,
                   response.status, because);
    default:
      if (response.status >= 500) {
        return Error(ErrorKind::kIo, "'{}': the server failed: {}{}", shown, response.status,
                     because);
      }
      return Error(ErrorKind::kData, "'{}': the server answered {}{}", shown, response.status,
                   because);
  }
}

std::optional<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!lower(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text = trim(text.substr(6));
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) {
    return std::nullopt;
  }
  const auto first = parse_size(text.substr(0, dash));
  const auto last = parse_size(text.substr(dash + 1, slash - dash - 1));
  const auto size = parse_size(text.substr(slash + 1));
  if (!first || !last || !size || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{.first = *first, .last = *last, .size = *size};
}

}  // namespace muster::store
