#include "muster/roster/wire/message_bytes.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>

#include "muster/base/check.h"
#include "muster/roster/wire/roster.pb.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster::wire {

namespace {
// A roster is sent as the difference to what a worker has, so there are as many forms of it at a
// time as there are rosters that workers still have.
constexpr size_t kMostKept = 8;
}  // namespace

grpc::ByteBuffer MessageBytes::of(const std::shared_ptr<const ToWorker>& message) {
  const auto found = std::ranges::find(kept_, message, [](const auto& one) { return one.first; });
  if (found != kept_.end()) return found->second;
  v1::ToWorker whole;
  to_wire(*message, whole);
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status done = grpc::SerializationTraits<v1::ToWorker>::Serialize(whole, &bytes, &own);
  MUSTER_CHECK(done.ok(), "a message to a worker cannot be put into bytes");
  ++made_;
  if (message.use_count() > 1) {
    kept_.emplace_back(message, bytes);
    if (kept_.size() > kMostKept) kept_.pop_front();
  }
  return bytes;
}

}  // namespace muster::roster::wire
