#include "muster/store/http_store.h"

#include <optional>

#include "muster/store/url.h"

namespace muster::store {
namespace {

constexpr std::string_view kByTime = "Last-Modified: ";

Error no_ranges(std::string_view name) {
  return Error(ErrorKind::kData,
               "'{}': the server does not support ranges (it answers with the whole object): put "
               "the data on one that does, or download it",
               printable(name));
}

Error changed(std::string_view name) {
  return Error(ErrorKind::kData, "'{}' was changed since it was listed: restore it, or {}",
               printable(name), kUseNewData);
}

Status check_http(std::string_view name) {
  MUSTER_TRY(const auto address, parse_address(name));
  if (address.scheme != Scheme::kHttp) {
    return Error(ErrorKind::kInternal, "'{}' is not an HTTP address", printable(name));
  }
  return {};
}

}  // namespace

std::vector<std::string> range_headers(const Object& object, uint64_t offset, size_t length) {
  std::vector<std::string> headers = {
      fmt::format("Range: bytes={}-{}", offset, offset + length - 1)};
  // A weak ETag ("W/...") never matches If-Match, so it is only compared.
  if (object.version.starts_with('"')) headers.push_back("If-Match: " + object.version);
  return headers;
}

std::string version_of(const HttpResponse& response) {
  if (const auto tag = response.header("etag"); !tag.empty()) return std::string(tag);
  if (const auto time = response.header("last-modified"); !time.empty()) {
    return std::string(kByTime) + std::string(time);
  }
  return {};
}

Status check_range(const HttpResponse& response, const Object& object, uint64_t offset,
                   size_t length) {
  if (response.status != 206 && response.status != 200) {
    return status_error(response, object.name, "");
  }
  // Before anything else: of a changed object also the sizes differ.
  if (!object.version.empty() && version_of(response) != object.version) {
    return changed(object.name);
  }
  // The whole object: of one without a version only its size shows that it was changed.
  const auto whole = response.status == 200 ? parse_size(response.header("content-length"))
                                            : std::optional<uint64_t>();
  if (whole && *whole != object.size) return changed(object.name);
  if (response.unwanted) return no_ranges(object.name);
  if (response.status == 206) {
    const auto range = parse_content_range(response.header("content-range"));
    if (!range) {
      return Error(ErrorKind::kData, "'{}': the server's Content-Range is not understood: '{}'",
                   printable(object.name), response.header("content-range"));
    }
    if (range->size != object.size) return changed(object.name);
    if (range->first != offset || range->last != offset + length - 1) {
      return Error(ErrorKind::kData,
                   "'{}': the server sent bytes {} to {}, but {} to {} were asked for",
                   printable(object.name), range->first, range->last, offset, offset + length - 1);
    }
  }
  if (response.overflow) {
    return Error(ErrorKind::kData, "'{}': the server sent more than the {} bytes asked for",
                 printable(object.name), length);
  }
  if (response.filled < length) {
    return Error(ErrorKind::kIo, "'{}': the server sent {} of {} bytes", printable(object.name),
                 response.filled, length);
  }
  return {};
}

Result<std::vector<Object>> HttpStore::list(std::string_view address) {
  return list_stoppable(address, {});
}

// One byte is asked for, not HEAD: addresses that are signed are often so for GET only, and the
// answer also shows whether the server supports ranges.
Result<std::vector<Object>> HttpStore::list_stoppable(std::string_view address,
                                                      const std::stop_token& stop) {
  MUSTER_RETURN_IF_ERROR(check_http(address));
  if (address.substr(0, address.find('?')).find('*') != std::string_view::npos) {
    return Error(ErrorKind::kJob,
                 "'{}': HTTP servers cannot be listed, so * has no meaning: name each object (a * "
                 "in its name is %2A)",
                 printable(address));
  }
  std::byte first{};
  HttpRequest request{.url = std::string(address),
                      .name = std::string(address),
                      .headers = {"Range: bytes=0-0"},
                      .body = {},
                      .into = {&first, 1},
                      .fill = true,
                      .netrc = true};
  MUSTER_TRY(const auto response, client_.perform(request, stop));
  Object object{.name = std::string(address), .size = 0, .version = version_of(response)};
  if (response.status == 206) {
    const auto range = parse_content_range(response.header("content-range"));
    if (!range) {
      return Error(ErrorKind::kData, "'{}': the server does not say how large the object is",
                   printable(address));
    }
    object.size = range->size;
  } else if (response.status == 200) {
    const auto length = parse_size(response.header("content-length"));
    if (!length) return no_ranges(address);
    object.size = *length;
  } else if (response.status == 416 && response.header("content-range").ends_with("*/0")) {
    // No byte of an empty object can be asked for.
  } else {
    return status_error(response, address, "");
  }
  return std::vector{std::move(object)};
}

Status HttpStore::read(const Object& object, uint64_t offset, std::span<std::byte> into) {
  return read_stoppable(object, offset, into, {});
}

Status HttpStore::read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                                 const std::stop_token& stop) {
  if (into.empty()) return {};
  MUSTER_RETURN_IF_ERROR(check_http(object.name));
  const HttpRequest request{.url = object.name,
                            .name = object.name,
                            .headers = range_headers(object, offset, into.size()),
                            .body = {},
                            .into = into,
                            .fill = true,
                            .accept_whole = offset == 0 && into.size() == object.size,
                            .netrc = true};
  MUSTER_TRY(const auto response, client_.perform(request, stop));
  return check_range(response, object, offset, into.size());
}

}  // namespace muster::store
