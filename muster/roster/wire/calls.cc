#include "muster/roster/wire/calls.h"

#include <utility>

namespace muster::roster::wire {

SessionCall::SessionCall(CallHandler& handler) : handler_(handler) {}

void SessionCall::expect(CallHandler& handler) {
  auto* call = new SessionCall(handler);
  handler.service().RequestSession(&call->context_, &call->stream_, handler.queue(),
                                   handler.queue(), call->give(call->accepted_));
}

void SessionCall::accepted(bool ok) {
  if (!ok || handler_.closed()) return;
  expect(handler_);
  session_ = handler_.opened(this);
  stream_.Read(&incoming_, give(read_));
}

void SessionCall::read(bool ok) {
  v1::FromWorker message;
  if (!ok || !grpc::SerializationTraits<v1::FromWorker>::Deserialize(&incoming_, &message).ok()) {
    // The worker closed its end, or its machine closed it for a process that is no more; or it is
    // none of ours.
    broken_ = true;
    waiting_.clear();
    handler_.ended(std::exchange(session_, 0));
    finish();
    return;
  }
  if (session_ != 0 && !closing_) handler_.received(session_, std::move(message));
  if (!handler_.closed()) {
    stream_.Read(&incoming_, give(read_));
  } else if (session_ != 0) {
    handler_.ended(std::exchange(session_, 0));  // nothing will be read any more
  }
}

void SessionCall::send(const grpc::ByteBuffer& message, bool close) {
  if (closing_ || broken_) return;
  closing_ = close;
  waiting_.push_back(message);
  if (!writing_) write_next();
}

void SessionCall::write_next() {
  if (handler_.closed()) return;
  writing_ = true;
  const grpc::ByteBuffer message = waiting_.front();
  waiting_.pop_front();
  stream_.Write(message, give(written_));
}

void SessionCall::written(bool ok) {
  writing_ = false;
  if (!ok) broken_ = true;
  if (broken_) waiting_.clear();
  if (!waiting_.empty()) {
    write_next();
  } else if (broken_) {
    finish();
  }
  // After the last message the worker hangs up, and read() ends the call. Ending it here could lose
  // that message: a server that is shut down next does not wait for what is still on its way.
}

void SessionCall::finish() {
  if (finishing_ || writing_ || handler_.closed()) return;
  finishing_ = true;
  stream_.Finish(grpc::Status::OK, give(finished_));
}

}  // namespace muster::roster::wire
