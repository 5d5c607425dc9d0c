#include "muster/ps/net/stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "muster/base/check.h"
#include "muster/ps/bytes.h"
#include "muster/roster/wire/channel.h"

namespace muster::ps {
namespace {

constexpr size_t kFull = 8 << 20;  // bytes of a batch to which nothing is added
constexpr const char* kMethod = "/muster.ps/Messages";

// What is larger than this is not copied. A slice costs about as much as so many bytes.
constexpr size_t kSmall = 2048;

// Without a copy: it is freed when gRPC has sent it.
grpc::Slice slice_of(Bytes bytes) {
  auto* const owned = new Bytes(std::move(bytes));
  return {const_cast<char*>((*owned)->data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
          (*owned)->size(), [](void* kept) { delete static_cast<Bytes*>(kept); }, owned};
}

Bytes bytes_of(const grpc::Slice& slice) {
  auto owner = std::make_shared<const grpc::Slice>(slice);
  const std::string_view view(reinterpret_cast<const char*>(owner->begin()), owner->size());
  return {std::move(owner), view};
}

// From the end of a message of that size, or of a batch, to where the next one begins.
size_t gap_behind(size_t size) { return (8 - size % 8) % 8; }

}  // namespace

std::optional<Bytes> take_message(const Bytes& batch, std::string_view& rest) {
  uint64_t size = 0;
  if (!take(rest, size) || size > rest.size()) return std::nullopt;
  Bytes message = batch.part(rest.substr(0, size));
  rest.remove_prefix(size);
  rest.remove_prefix(std::min(gap_behind(size), rest.size()));
  return message;
}

bool Stream::add(Packet message) {
  if (!open_ || ended_) return false;
  if (batches_.empty() || batches_.back().size > kFull) batches_.emplace_back();
  waiting_ -= batches_.back().size;
  batches_.back().add(std::move(message));
  waiting_ += batches_.back().size;
  MUSTER_CHECK(batches_.back().size <= std::numeric_limits<uint32_t>::max(),
               "who sends a message sees that it is not too large (kLargestMessage)");
  return true;
}

void Stream::Batch::add(Packet message) {
  const uint64_t bytes = message.size();
  const size_t gap = gap_behind(size);
  small.append(gap, '\0');
  append(small, bytes);
  small += message.head;
  if (message.body->size() > kSmall) {
    end_small();
    slices.push_back(slice_of(std::move(message.body)));
  } else {
    small += *message.body;
  }
  size += gap + sizeof(uint64_t) + bytes;
}

void Stream::Batch::end_small() {
  if (!small.empty()) slices.push_back(slice_of(Bytes(std::exchange(small, {}))));
}

void Stream::flush() {
  if (writing_ > 0 || ended_ || stopped_ || batches_.empty()) return;
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  writing_ = batch.size;
  waiting_ -= writing_;
  batch.end_small();
  start_write({batch.slices.data(), batch.slices.size()}, give(written_));
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
  listener_.on_batch(*this, bytes_of(batch));
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
