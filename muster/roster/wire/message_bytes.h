// Messages to workers in the form they have on the wire, made once for all sessions that are told
// the same. With thousands of workers, putting a roster into bytes for each of them is most of what
// the coordinator would do, and the last one would wait for it.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "muster/roster/messages.h"

namespace muster::roster::wire {

// Not safe for concurrent use.
class MessageBytes {
 public:
  // Messages are the same if they are one object. The bytes are shared, not copied.
  grpc::ByteBuffer of(const std::shared_ptr<const ToWorker>& message);
  // How often bytes were made.
  uint64_t made() const { return made_; }

 private:
  // One that nobody else holds is told to one session, and is not kept.
  std::deque<std::pair<std::shared_ptr<const ToWorker>, grpc::ByteBuffer>> kept_;  // newest last
  uint64_t made_ = 0;
};

}  // namespace muster::roster::wire
