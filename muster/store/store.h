// Where data lies: objects that are listed, and read by ranges. Files of this machine, HTTP, S3 and
// WebHDFS (url.h says which a job's address means).
//
// A read may fail and may take long. What can be expected to pass (a connection that broke, a
// server that is away or asks to slow down) is kIo, and the caller may try again; kData means that
// trying again is of no use: the object is gone, was changed since it was listed, or may not be
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::store {

// An object as it was when it was listed.
struct Object {
  std::string name;     // its address, as read() takes it
  uint64_t size = 0;
  std::string version;  // an ETag, or time of change and inode: differs if the contents differ
  bool operator==(const Object&) const = default;
};

// Safe for concurrent use.
class Store {
 public:
  virtual ~Store() = default;
  // The objects that match an address, with * and ? within names and ** across folders, by name
  // bytewise. An address without them gives one object; it is an error if there is none.
  virtual Result<std::vector<Object>> list(std::string_view address) = 0;
  // Fills `into` with the bytes from `offset` on, all of which lie within the object. An object
  // that has another version by now is an error of kind kData that names it.
  virtual Status read(const Object& object, uint64_t offset, std::span<std::byte> into) = 0;
};

}  // namespace muster::store
