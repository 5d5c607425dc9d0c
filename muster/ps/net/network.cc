#include "muster/ps/net/network.h"

#include <grpcpp/alarm.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "muster/ps/net/stream.h"
#include "muster/roster/wire/channel.h"

namespace muster::ps {
namespace {

// Of one turn: completions, and for how long. Each may be a copy of a shard, which takes long to
// load; a server's heartbeats come between turns.
constexpr int kMostAtOnce = 256;
constexpr auto kLongest = std::chrono::milliseconds(50);

// ms, of the end that listens; the one that connects does the same (roster/wire/channel.cc). Else a
// peer that is suspended, or whose machine is gone, would have its connection, and what waits to be
// sent, for ever.
constexpr int kPingEvery = 2000;
constexpr int kPingTimeout = 8000;

std::chrono::system_clock::time_point after(Duration wait) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
}

}  // namespace

class Network::Impl final : public Stream::Listener {
 public:
  explicit Impl(NetworkListener& listener)
      : listener_(listener), queue_(std::make_unique<grpc::CompletionQueue>()) {}

  ~Impl() override {
    closing_ = true;
    for (const auto& [id, stream] : streams_) {
      stream->stop();
      stream->cancel();
    }
    for (const auto& stream : leaving_) stream->stop();
    if (next_) next_->stop();  // nobody has come, so there is nothing to cancel
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    {
      const std::lock_guard lock(wake_mutex_);
      alarm_.Cancel();
      queue_->Shutdown();
      queue_closed_ = true;
    }
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<Completion*>(tag)->done(ok);
  }

  Result<std::string> listen(const std::string& address) {
    const auto colon = address.rfind(':');
    if (colon == std::string::npos) {
      return Error(ErrorKind::kUsage, "'{}' is not an address: write it as 'host:port'", address);
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service_);
    roster::wire::tune(builder);
    builder.SetMaxReceiveMessageSize(-1);  // a copy of a shard is one message
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEvery);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeout);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    auto queue = builder.AddCompletionQueue();
    server_queue_ = queue.get();
    queue_->Shutdown();
    queue_ = std::move(queue);
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      return Error(ErrorKind::kIo,
                   "cannot listen on {}: the port is in use (port 0 picks a free one), or the "
                   "address does not belong to this machine",
                   address);
    }
    expect();
    return address.substr(0, colon + 1) + std::to_string(port);
  }

  ConnectionId connect(const std::string& address) {
    return keep(std::make_unique<OutgoingStream>(address, *queue_, *this));
  }

  void send(ConnectionId connection, Packet message) {
    const auto found = streams_.find(connection);
    if (found == streams_.end() || !found->second->add(std::move(message))) return;
    if (changed_.empty() || changed_.back() != connection) changed_.push_back(connection);
  }

  size_t waiting(ConnectionId connection) const {
    const auto found = streams_.find(connection);
    return found == streams_.end() ? 0 : found->second->waiting();
  }

  void close(ConnectionId connection) {
    const auto found = streams_.find(connection);
    if (found == streams_.end()) return;
    found->second->cancel();
    leave(found);
  }

  void turn(Duration longest) {
    flush();
    void* tag = nullptr;
    bool ok = false;
    auto next = queue_->AsyncNext(&tag, &ok, after(longest));
    const auto until = std::chrono::steady_clock::now() + kLongest;
    for (int i = 0; next == grpc::CompletionQueue::GOT_EVENT; ++i) {
      static_cast<Completion*>(tag)->done(ok);
      if (i == kMostAtOnce || std::chrono::steady_clock::now() >= until) break;
      next = queue_->AsyncNext(&tag, &ok, std::chrono::system_clock::time_point{});
    }
    flush();
    std::erase_if(leaving_, [](const auto& stream) { return stream->idle(); });
  }

  void wake() {
    const std::lock_guard lock(wake_mutex_);
    if (woken_.set || queue_closed_) return;
    woken_.set = true;
    // Long ago: gRPC rounds up to a millisecond, and "now" would be the next one.
    alarm_.Set(queue_.get(), std::chrono::system_clock::time_point{}, &woken_);
  }

 private:
  using Streams = std::map<ConnectionId, std::unique_ptr<Stream>>;

  struct Woken final : Completion {
    explicit Woken(Impl& owner) : impl(owner) {}
    void done(bool) override {
      const std::lock_guard lock(impl.wake_mutex_);
      set = false;
    }
    Impl& impl;
    bool set = false;  // an alarm that is set must not be set again
  };

  ConnectionId keep(std::unique_ptr<Stream> stream) {
    stream->id = ++last_id_;
    streams_.emplace(last_id_, std::move(stream));
    return last_id_;
  }

  void expect() { next_ = std::make_unique<IncomingStream>(service_, *server_queue_, *this); }

  void flush() {
    for (const ConnectionId id : std::exchange(changed_, {})) {
      if (const auto found = streams_.find(id); found != streams_.end()) found->second->flush();
    }
  }

  // It is destroyed when gRPC is done with it.
  void leave(Streams::iterator stream) {
    leaving_.push_back(std::move(stream->second));
    streams_.erase(stream);
  }

  void on_open(Stream& stream) override {
    if (next_.get() == &stream) {
      keep(std::move(next_));
      if (!closing_) expect();
    }
    if (closing_) return stream.cancel();
    if (streams_.contains(stream.id)) listener_.opened(stream.id);
  }

  void on_batch(Stream& stream, const Bytes& batch) override {
    std::string_view rest = *batch;
    while (!rest.empty()) {
      const auto message = take_message(batch, rest);
      if (!message) return stream.cancel();
      // It may have been closed by what came before.
      if (closing_ || !streams_.contains(stream.id)) return;
      listener_.received(stream.id, *message);
    }
  }

  void on_broken(Stream& stream) override {
    const auto found = streams_.find(stream.id);
    if (found == streams_.end()) return;  // closed from here, or nobody has come
    const ConnectionId id = stream.id;
    leave(found);
    if (!closing_) listener_.closed(id);
  }

  NetworkListener& listener_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::CompletionQueue> queue_;
  grpc::ServerCompletionQueue* server_queue_ = nullptr;  // the same, if it listens
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Stream> next_;  // waits for somebody
  ConnectionId last_id_ = 0;
  Streams streams_;
  std::vector<std::unique_ptr<Stream>> leaving_;
  std::vector<ConnectionId> changed_;  // since the last flush
  bool closing_ = false;

  std::mutex wake_mutex_;
  Woken woken_{*this};
  bool queue_closed_ = false;
  grpc::Alarm alarm_;
};

Network::Network(NetworkListener& listener) : impl_(std::make_unique<Impl>(listener)) {}
Network::~Network() = default;
Result<std::string> Network::listen(const std::string& address) { return impl_->listen(address); }
ConnectionId Network::connect(const std::string& address) { return impl_->connect(address); }
void Network::send(ConnectionId connection, Packet message) {
  impl_->send(connection, std::move(message));
}
size_t Network::waiting(ConnectionId connection) const { return impl_->waiting(connection); }
void Network::close(ConnectionId connection) { impl_->close(connection); }
void Network::turn(Duration longest) { impl_->turn(longest); }
void Network::wake() { impl_->wake(); }

}  // namespace muster::ps
