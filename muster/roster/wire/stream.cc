#include "muster/roster/wire/stream.h"

#include <utility>

#include "muster/roster/wire/channel.h"

namespace muster::roster::wire {

Stream::Stream(const std::string& address, grpc::CompletionQueue& queue, Listener& listener)
    : listener_(listener),
      channel_(open_channel(address)),
      stub_(v1::Coordinator::NewStub(channel_)) {
  stream_ = stub_->AsyncSession(&context_, &queue, give(opened_));
}

void Stream::opened(bool ok) {
  if (!ok) {
    end();
    return;
  }
  open_ = true;
  stream_->Read(&incoming_, give(read_));
  listener_.on_open(*this);
}

void Stream::read(bool ok) {
  if (!ok) {
    end();
    return;
  }
  v1::ToWorker message = std::move(incoming_);
  incoming_.Clear();
  stream_->Read(&incoming_, give(read_));
  listener_.on_message(*this, std::move(message));
}

void Stream::send(const v1::FromWorker& message) {
  if (ended_ || !open_ || closing_) return;
  waiting_.push_back(message);
  if (!writing_) write_or_close();
}

void Stream::close() {
  if (ended_ || closing_) return;
  closing_ = true;
  if (!open_) {
    cancel();
  } else if (!writing_) {
    write_or_close();
  }
}

void Stream::write_or_close() {
  if (!waiting_.empty()) {
    writing_ = true;
    const v1::FromWorker next = std::move(waiting_.front());
    waiting_.pop_front();
    stream_->Write(next, give(written_));
  } else if (closing_) {
    stream_->WritesDone(give(closed_));
  }
}

void Stream::written(bool ok) {
  writing_ = false;
  if (ok && !ended_) {
    write_or_close();
  } else {
    waiting_.clear();  // a read that fails follows, and ends it
  }
}

void Stream::end() {
  if (ended_) return;
  ended_ = true;
  stream_->Finish(&status_, give(finished_));
  listener_.on_broken(*this);
}

}  // namespace muster::roster::wire
