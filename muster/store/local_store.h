// Files of this machine, or of a file system that is mounted on it.
//
// A version is time of change, inode and size. Reads check it after the bytes were read, so a file
// that is replaced or changed meanwhile is noticed. A read that the kernel cannot finish (a mounted
// server that is away) cannot be interrupted.
#pragma once

#include "muster/store/store.h"

namespace muster::store {

class LocalStore final : public Store {
 public:
  Result<std::vector<Object>> list(std::string_view address) override;
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override;
  Result<std::vector<Object>> list_in_requests(std::string_view address, const MakeRequest& make,
                                               const std::stop_token& stop) override;
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override;
  // Writes beside the file, syncs, renames. if_absent is atomic. if_version holds a lock (flock) on
  // the directory, so it is atomic among processes that write through here on this machine.
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override;
  Status remove(std::string_view address) override;
};

}  // namespace muster::store
