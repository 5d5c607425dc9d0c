// Where data is: objects that are listed, read by ranges, written and removed. Files of this
// machine, HTTP, S3 and WebHDFS (url.h says which one an address means, open.h gives a Store for
// all of them).
//
// A request may fail and may take long. Failures that can be expected to pass (a broken connection,
// a server that is down or asks to slow down) are of kind kIo, and the caller may try again
// (retry.h does). Any other kind means that trying again is of no use: the object is gone, was
// changed since it was listed, or may not be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::store {

// An object as it was when it was listed.
struct Object {
  std::string name;  // its address, as read() takes it; * and ? in it mean themselves
  uint64_t size = 0;
  // An ETag, or time of change and inode: differs if the contents differ. Empty: the server has
  // none, and only the size is compared.
  std::string version;
  bool operator==(const Object&) const = default;
};

// The end of an error's sentence about an object that was changed. An index in data.index names the
// old version, and a new run would take it.
inline constexpr const char* kUseNewData =
    "start a new run with the new data (if data.index is set, run `muster data index JOB --again` "
    "first)";

// Under which condition write() replaces what is there.
struct WriteCondition {
  enum class Kind { kAlways, kIfAbsent, kIfVersion };
  Kind kind = Kind::kAlways;
  std::string version;  // kIfVersion: the version that must be there

  static WriteCondition always() { return {}; }
  static WriteCondition if_absent() { return {.kind = Kind::kIfAbsent, .version = {}}; }
  static WriteCondition if_version(std::string version) {
    return {.kind = Kind::kIfVersion, .version = std::move(version)};
  }
};

// Since the store was made, of stores that try again (retry.h).
struct StoreCounters {
  uint64_t reads = 0;       // that succeeded
  uint64_t bytes = 0;       // of those
  uint64_t retries = 0;     // attempts after the first one, of all calls
  uint64_t hedges = 0;      // second requests sent
  uint64_t hedges_won = 0;  // that answered first
  bool operator==(const StoreCounters&) const = default;
};

// Makes a request by calling it. A caller that wants to try again calls it again after a failure.
using MakeRequest = std::function<Status(const std::function<Status()>& request)>;

// Calls it once.
Status make_once(const std::function<Status()>& request);

// What `request`, which returns a Result, gave when `make` made it last.
template <typename Request>
auto answer_of(const MakeRequest& make, const Request& request) -> decltype(request()) {
  std::optional<decltype(request())> answer;
  MUSTER_RETURN_IF_ERROR(make([&]() -> Status {
    answer.emplace(request());
    return answer->ok() ? Status() : Status(answer->error());
  }));
  return *std::move(answer);
}

// Safe for concurrent use.
class Store {
 public:
  virtual ~Store() = default;

  // The objects that match an address, with * and ? within names and ** across folders, by name
  // bytewise. An address without them gives one object; it is an error if there is none.
  virtual Result<std::vector<Object>> list(std::string_view address) = 0;
  // Like list(), and returns soon after `stop` was requested, with an error of kind kInterrupted. A
  // store that cannot interrupt a list ignores `stop`.
  virtual Result<std::vector<Object>> list_stoppable(std::string_view address,
                                                     const std::stop_token& stop);
  // Like list_stoppable(). A list may take many requests (pages, folders); each is made by `make`,
  // so that one which fails can be made again without the others. A store that cannot divide its
  // lists passes on the whole list as one request.
  virtual Result<std::vector<Object>> list_in_requests(std::string_view address,
                                                       const MakeRequest& make,
                                                       const std::stop_token& stop);

  // Fills `into` with the bytes from `offset` on, all of which lie within the object. An object
  // that has another version by now is an error of kind kData that names it. After an error the
  // contents of `into` are undefined.
  virtual Status read(const Object& object, uint64_t offset, std::span<std::byte> into) = 0;

  // Like read(), and returns soon after `stop` was requested, with an error of kind kInterrupted.
  // A store that cannot interrupt a read ignores `stop`.
  virtual Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                                const std::stop_token& stop);

  // Why calls that are under way have not succeeded yet, for people; empty: no failure is known. Of
  // stores that try again.
  virtual std::string problem() const { return {}; }
  virtual StoreCounters counters() const { return {}; }

  // Makes `bytes` the contents of the object, wholly or, after an error, not at all (an error of
  // kind kIo may also come after the object was written). Returns the new version, or nothing if
  // the condition does not hold. A store that cannot be written to returns an error.
  virtual Result<std::optional<std::string>> write(std::string_view address,
                                                   std::span<const std::byte> bytes,
                                                   const WriteCondition& condition);
  // Like write(), and returns soon after `stop` was requested, with an error of kind kInterrupted;
  // the object may have been written all the same. A store that cannot interrupt a write ignores
  // `stop`.
  virtual Result<std::optional<std::string>> write_stoppable(std::string_view address,
                                                             std::span<const std::byte> bytes,
                                                             const WriteCondition& condition,
                                                             const std::stop_token& stop);

  // Fine if there is none. A store that cannot be written to returns an error.
  virtual Status remove(std::string_view address);
  // Like remove(), and returns soon after `stop` was requested, with an error of kind kInterrupted.
  // A store that cannot interrupt a removal ignores `stop`.
  virtual Status remove_stoppable(std::string_view address, const std::stop_token& stop);
};

}  // namespace muster::store
