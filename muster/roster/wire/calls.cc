#include "muster/roster/wire/calls.h"

#include <utility>

namespace muster::roster::wire {

SessionCall::SessionCall(Desk& desk) : desk_(desk) {}

void SessionCall::expect(Desk& desk) {
  auto* call = new SessionCall(desk);
  desk.service().RequestSession(&call->context_, &call->stream_, desk.queue(), desk.queue(),
                                call->give(call->accepted_));
}

void SessionCall::accepted(bool ok) {
  if (!ok || desk_.closed()) return;
  expect(desk_);
  session_ = desk_.opened(this);
  stream_.Read(&incoming_, give(read_));
}

void SessionCall::read(bool ok) {
  v1::FromWorker message;
  if (!ok || !grpc::SerializationTraits<v1::FromWorker>::Deserialize(&incoming_, &message).ok()) {
    // The worker closed its end, or its machine closed it for a process that is no more; or it is
    // none of ours.
    broken_ = true;
    waiting_.clear();
    desk_.ended(std::exchange(session_, 0));
    finish();
    return;
  }
  if (session_ != 0 && !closing_) desk_.received(session_, std::move(message));
  if (!desk_.closed()) stream_.Read(&incoming_, give(read_));
}

void SessionCall::send(const grpc::ByteBuffer& message, bool close) {
  if (closing_ || broken_) return;
  closing_ = close;
  waiting_.push_back(message);
  if (!writing_) write_next();
}

void SessionCall::write_next() {
  if (desk_.closed()) return;
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
  if (finishing_ || writing_ || desk_.closed()) return;
  finishing_ = true;
  stream_.Finish(grpc::Status::OK, give(finished_));
}

}  // namespace muster::roster::wire
