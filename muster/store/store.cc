#include "muster/store/store.h"

#include "muster/store/url.h"

namespace muster::store {

Status make_once(const std::function<Status()>& request) { return request(); }

Result<std::vector<Object>> Store::list_stoppable(std::string_view address,
                                                  const std::stop_token&) {
  return list(address);
}

Result<std::vector<Object>> Store::list_in_requests(std::string_view address,
                                                    const MakeRequest& make,
                                                    const std::stop_token& stop) {
  return answer_of(make, [&] { return list_stoppable(address, stop); });
}

Status Store::read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                             const std::stop_token&) {
  return read(object, offset, into);
}

Result<std::optional<std::string>> Store::write(std::string_view address,
                                                std::span<const std::byte>, const WriteCondition&) {
  return Error(ErrorKind::kJob,
               "'{}' cannot be written: objects can be written to local paths and s3://",
               printable(address));
}

Result<std::optional<std::string>> Store::write_stoppable(std::string_view address,
                                                          std::span<const std::byte> bytes,
                                                          const WriteCondition& condition,
                                                          const std::stop_token&) {
  return write(address, bytes, condition);
}

Status Store::remove(std::string_view address) {
  return Error(ErrorKind::kJob,
               "'{}' cannot be removed: objects can be removed from local paths and s3://",
               printable(address));
}

Status Store::remove_stoppable(std::string_view address, const std::stop_token&) {
  return remove(address);
}

}  // namespace muster::store
