#include "muster/ps/net/stream.h"

#include <utility>

#include "muster/ps/bytes.h"
#include "muster/roster/wire/channel.h"

namespace muster::ps {
namespace {

constexpr size_t kFull = 8 << 20;  // bytes of a batch to which nothing is added
constexpr const char* kMethod = "/muster.ps/Messages";

// Without a copy: the string is freed when gRPC has sent it.
grpc::ByteBuffer buffer_of(std::unique_ptr<std::string> bytes) {
  std::string* const owned = bytes.release();
  const grpc::Slice slice(
      owned->data(), owned->size(), [](void* string) { delete static_cast<std::string*>(string); },
      owned);
  return {&slice, 1};
}

}  // namespace

bool Stream::add(std::string_view message) {
  if (!open_ || ended_) return false;
  if (batches_.empty() || batches_.back()->size() > kFull) {
    batches_.push_back(std::make_unique<std::string>());
  }
  append(*batches_.back(), uint64_t{message.size()});
  batches_.back()->append(message);
  waiting_ += sizeof(uint64_t) + message.size();
  return true;
}

void Stream::flush() {
  if (writing_ > 0 || ended_ || stopped_ || batches_.empty()) return;
  writing_ = batches_.front()->size();
  waiting_ -= writing_;
  auto batch = std::move(batches_.front());
  batches_.pop_front();
  start_write(buffer_of(std::move(batch)), give(written_));
}

void Stream::opened(bool ok) {
  if (!ok || stopped_) return end();
  open_ = true;
  start_read(incoming_, give(read_));
  listener_.on_open(*this);
}

void Stream::read(bool ok) {
  if (!ok || stopped_) return end();
  grpc::Slice batch;
  const bool whole = incoming_.DumpToSingleSlice(&batch).ok();
  incoming_.Clear();
  if (!whole) {
    cancel();
    return end();
  }
  start_read(incoming_, give(read_));
  listener_.on_batch(*this, {reinterpret_cast<const char*>(batch.begin()), batch.size()});
}

void Stream::written(bool ok) {
  writing_ = 0;
  if (ok) {
    flush();
  } else {
    batches_.clear();  // a read that fails follows, and ends it
  }
}

void Stream::end() {
  if (ended_) return;
  ended_ = true;
  // An incoming one that nobody has used has no call that could be finished.
  if ((open_ || id != 0) && !stopped_) start_finish(give(finished_));
  listener_.on_broken(*this);
}

OutgoingStream::OutgoingStream(const std::string& address, grpc::CompletionQueue& queue,
                               Listener& listener)
    : Stream(listener), channel_(roster::wire::open_channel(address)), stub_(channel_) {
  call_ = stub_.PrepareCall(&context_, kMethod, &queue);
  call_->StartCall(give(opened_));
}

IncomingStream::IncomingStream(grpc::AsyncGenericService& service,
                               grpc::ServerCompletionQueue& queue, Listener& listener)
    : Stream(listener) {
  service.RequestCall(&context_, &call_, &queue, &queue, give(opened_));
}

}  // namespace muster::ps
