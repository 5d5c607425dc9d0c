#include "muster/store/hdfs_store.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "muster/store/glob.h"
#include "muster/store/walk.h"

namespace muster::store {
namespace {

using nlohmann::json;

constexpr size_t kMostListBytes = size_t{256} << 20;

Error wrong(std::string_view name, std::string_view what) {
  return Error(ErrorKind::kData, "'{}': the answer of the name node is not understood: {}", name,
               what);
}

// A member of an object, or null.
const json& member(const json& value, const char* name) {
  static const json kNull;
  if (!value.is_object()) return kNull;
  const auto at = value.find(name);
  return at == value.end() ? kNull : *at;
}

Result<HdfsStatus> status_of(const json& value, std::string_view name) {
  const auto& type = member(value, "type");
  const auto& length = member(value, "length");
  const auto& time = member(value, "modificationTime");
  const auto& suffix = member(value, "pathSuffix");
  if (!type.is_string() || !length.is_number_unsigned() || !time.is_number_integer() ||
      !suffix.is_string()) {
    return wrong(name, "a FileStatus without type, length, modificationTime or pathSuffix");
  }
  HdfsStatus status{.suffix = suffix.get<std::string>(),
                    .is_folder = type.get<std::string>() != "FILE",
                    .length = length.get<uint64_t>(),
                    .version = {}};
  status.version = fmt::format("{}-{}", time.get<int64_t>(), status.length);
  return status;
}

// Which exceptions of a node pass by themselves, whatever the status. Hadoop answers 403 to every
// kind of IOException that is none of a missing file, so also when no data node that is alive has a
// block ("IOException: No active nodes contain this block"), or one node cannot read from another.
// A refusal is an AccessControlException, a SecurityException or another one of its own.
bool passes(std::string_view exception) {
  static constexpr std::string_view kPassing[] = {"StandbyException",
                                                  "RetriableException",
                                                  "SafeModeException",
                                                  "ServerTooBusyException",
                                                  "IOException",
                                                  "BlockMissingException",
                                                  "ConnectException",
                                                  "ConnectTimeoutException",
                                                  "SocketTimeoutException",
                                                  "EOFException"};
  return std::ranges::find(kPassing, exception) != std::end(kPassing);
}

Error error_of(const HttpResponse& response, std::string_view name) {
  const json body = json::parse(response.body, nullptr, false);
  const auto& remote = member(body, "RemoteException");
  const auto& kind = member(remote, "exception");
  const auto& message = member(remote, "message");
  const std::string exception = kind.is_string() ? kind.get<std::string>() : "";
  std::string details = exception;
  if (message.is_string()) {
    const auto text = message.get<std::string>();
    details += ": " + text.substr(0, text.find('\n'));
  }
  // As it is printed: a server could move the cursor.
  std::ranges::replace_if(
      details, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  if (passes(exception)) {
    return Error(ErrorKind::kIo, "'{}': HDFS cannot answer now ({})", name, details);
  }
  return status_error(response, name, details);
}

Result<Address> hdfs_address(std::string_view text) {
  MUSTER_TRY(auto address, parse_address(text));
  if (address.scheme != Scheme::kWebHdfs) {
    return Error(ErrorKind::kInternal, "'{}' is not an address of WebHDFS", printable(text));
  }
  return address;
}

Error changed(std::string_view name) {
  return Error(ErrorKind::kData, "'{}' was changed since it was listed: restore it, or {}", name,
               kUseNewData);
}

}  // namespace

Result<HdfsStatus> parse_file_status(std::string_view text, std::string_view name) {
  const json body = json::parse(text, nullptr, false);
  return status_of(member(body, "FileStatus"), name);
}

Result<std::vector<HdfsStatus>> parse_list_status(std::string_view text, std::string_view name) {
  const json body = json::parse(text, nullptr, false);
  const auto& list = member(member(body, "FileStatuses"), "FileStatus");
  if (!list.is_array()) return wrong(name, "no FileStatuses");
  std::vector<HdfsStatus> statuses;
  for (const auto& value : list) {
    MUSTER_TRY(auto status, status_of(value, name));
    statuses.push_back(std::move(status));
  }
  return statuses;
}

HdfsStore::HdfsStore(const Environment& environment, HttpOptions options)
    : user_(environment("HADOOP_USER_NAME").value_or("")), client_(std::move(options)) {}

HttpRequest HdfsStore::request(const Address& address, const std::string& operation) const {
  HttpRequest request{
      .url = fmt::format("{}{}/webhdfs/v1{}?op={}", address.tls ? "https://" : "http://",
                         address.host, percent_encode(address.path, true), operation),
      .name = to_text(address),
      .headers = {},
      .body = {},
      .into = {},
      .redirects = 1};
  if (!user_.empty()) request.url += "&user.name=" + percent_encode(user_, false);
  return request;
}

Result<std::vector<Object>> HdfsStore::list(std::string_view text) {
  return list_stoppable(text, {});
}

Result<std::vector<Object>> HdfsStore::list_stoppable(std::string_view text,
                                                      const std::stop_token& stop) {
  return list_in_requests(text, make_once, stop);
}

Result<std::vector<Object>> HdfsStore::list_in_requests(std::string_view text,
                                                        const MakeRequest& make,
                                                        const std::stop_token& stop) {
  MUSTER_TRY(const auto address, hdfs_address(text));
  const auto at = [&](const std::string& path) {
    Address other = address;
    other.path = path;
    return other;
  };
  const auto object_at = [&](const std::string& path, const HdfsStatus& status) {
    return Object{.name = to_text(at(path)), .size = status.length, .version = status.version};
  };
  const auto status_at = [&](const std::string& path) -> Result<std::optional<HdfsStatus>> {
    MUSTER_TRY(const auto response, client_.perform(request(at(path), "GETFILESTATUS"), stop));
    if (response.status == 404) return std::optional<HdfsStatus>();
    if (response.status != 200) return error_of(response, to_text(at(path)));
    MUSTER_TRY(auto status, parse_file_status(response.body, to_text(at(path))));
    return std::optional(std::move(status));
  };
  if (!has_wildcard(address.path)) {
    MUSTER_TRY(const auto status, answer_of(make, [&] { return status_at(address.path); }));
    if (!status) return Error(ErrorKind::kData, "there is no file '{}'", text);
    if (status->is_folder) {
      return Error(ErrorKind::kData,
                   "'{0}' is a directory: write '{0}{1}*' for the files in it, or '{0}{1}**' for "
                   "all files below it",
                   text, text.ends_with('/') ? "" : "/");
    }
    return std::vector{object_at(address.path, *status)};
  }
  const auto glob = Glob::parse(address.path);
  if (!glob.ok()) return Error(glob.error()).context("address '{}'", text);
  const Tree tree{
      .list_folder = [&](const std::string& folder) -> Result<std::vector<FolderEntry>> {
        auto asking = request(at(folder), "LISTSTATUS");
        asking.most_body = kMostListBytes;
        MUSTER_TRY(const auto response, client_.perform(asking, stop));
        std::vector<FolderEntry> entries;
        if (response.status == 404) return entries;
        if (response.status != 200) return error_of(response, asking.name);
        if (response.truncated) {
          return Error(ErrorKind::kData,
                       "'{}': the list of this directory is longer than 256 MiB; put fewer files "
                       "into one directory",
                       asking.name);
        }
        MUSTER_TRY(const auto statuses, parse_list_status(response.body, asking.name));
        for (const auto& status : statuses) {
          // The list of a file is the file itself, without a name: it is no folder.
          if (status.suffix.empty()) continue;
          entries.push_back({.name = status.suffix,
                             .is_folder = status.is_folder,
                             .object = object_at(folder + status.suffix, status)});
        }
        return entries;
      },
      .look_at = [&](const std::string& path) -> Result<std::optional<Object>> {
        MUSTER_TRY(const auto status, status_at(path));
        if (!status || status->is_folder) return std::optional<Object>();
        return std::optional(object_at(path, *status));
      }};
  return walk(*glob, tree, make, stop);
}

Status HdfsStore::read(const Object& object, uint64_t offset, std::span<std::byte> into) {
  return read_stoppable(object, offset, into, {});
}

Status HdfsStore::read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                                 const std::stop_token& stop) {
  if (into.empty()) return {};
  MUSTER_TRY(const auto address, hdfs_address(object.name));
  auto opening = request(address, fmt::format("OPEN&offset={}&length={}", offset, into.size()));
  opening.into = into;
  opening.fill = true;
  opening.accept_whole = true;  // data nodes answer 200 to a part
  MUSTER_TRY(const auto response, client_.perform(opening, stop));
  const bool got = response.status == 200 || response.status == 206;
  // A file that became shorter is "out of range" for the data node: the version says so better.
  const bool refused = response.status == 400 || response.status == 403;
  if (!got && !refused) return error_of(response, object.name);

  MUSTER_TRY(const auto now, client_.perform(request(address, "GETFILESTATUS"), stop));
  if (now.status != 200) return error_of(now, object.name);
  MUSTER_TRY(const auto status, parse_file_status(now.body, object.name));
  if (!object.version.empty() && status.version != object.version) return changed(object.name);
  // Also an IOException, which would be asked for again for ever.
  if (offset > status.length || into.size() > status.length - offset) return changed(object.name);
  if (!got) return error_of(response, object.name);
  if (response.overflow) {
    return Error(ErrorKind::kData, "'{}': the server sent more than the {} bytes asked for",
                 object.name, into.size());
  }
  if (response.filled < into.size()) {
    return Error(ErrorKind::kIo, "'{}': the server sent {} of {} bytes", object.name,
                 response.filled, into.size());
  }
  return {};
}

}  // namespace muster::store
