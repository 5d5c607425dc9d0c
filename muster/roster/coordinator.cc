#include "muster/roster/coordinator.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "muster/base/thread.h"
#include "muster/roster/wire/calls.h"
#include "muster/roster/wire/channel.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {

using namespace std::chrono_literals;

class Coordinator::Server final : public wire::Desk {
 public:
  Server(CoordinatorOptions options, const Clock& clock)
      : clock_(clock), options_(std::move(options)), registrar_(options_.roster, clock.now()) {}

  ~Server() override { stop(); }

  Status start() {
    const auto colon = options_.address.rfind(':');
    if (colon == std::string::npos) {
      return Error(ErrorKind::kUsage, "'{}' is not an address: write it as 'host:port'",
                   options_.address);
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    wire::tune(builder);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) {
      queue_->Shutdown();
      drain();
      return Error(ErrorKind::kIo,
                   "cannot listen on {}: another program has that port (0 takes a free one), or it "
                   "is no address of this machine (0.0.0.0 is all of them)",
                   options_.address);
    }
    address_ = options_.address.substr(0, colon + 1) + std::to_string(port);
    const std::lock_guard lock(mutex_);
    expect_calls();
    thread_ = Thread("roster-server", [this] { run(); });
    return {};
  }

  const std::string& address() const { return address_; }

  void exited(const std::string& id, int64_t process, const std::string& how) {
    const std::lock_guard lock(mutex_);
    registrar_.exited(clock_.now(), id, process, how);
    flush();
    wake();
  }

  bool end(const std::string& reason, Duration timeout) {
    std::unique_lock lock(mutex_);
    registrar_.stop(clock_.now(), reason);
    flush();
    wake();
    return hung_up_.wait_for(lock, timeout, [&] { return calls_.empty(); });
  }

  StatusReport report() const {
    const std::lock_guard lock(mutex_);
    return status_of(clock_.now(), registrar_);
  }

 private:
  struct Woken final : wire::Step {
    void done(bool) override { set = false; }
    bool set = false;  // an alarm that is set must not be set again
  };

  void expect_calls() {
    wire::SessionCall::expect(*this);
    using Exited = wire::QuickCall<v1::ExitedRequest, v1::ExitedReply>;
    using Asked = wire::QuickCall<v1::StatusRequest, v1::StatusReply>;
    Exited::expect(*this, &v1::Coordinator::AsyncService::RequestExited,
                   [](Desk& desk, const v1::ExitedRequest& request, v1::ExitedReply&) {
                     desk.exited(request);
                   });
    Asked::expect(
        *this, &v1::Coordinator::AsyncService::RequestStatus,
        [](Desk& desk, const v1::StatusRequest&, v1::StatusReply& reply) { desk.status(reply); });
  }

  // ---- The server's thread.

  void run() {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue_->AsyncNext(&tag, &ok, deadline());
      if (next == grpc::CompletionQueue::SHUTDOWN) return;
      {
        const std::lock_guard lock(mutex_);
        if (next == grpc::CompletionQueue::GOT_EVENT) static_cast<wire::Step*>(tag)->done(ok);
        const auto wake = registrar_.wake();
        const Moment now = clock_.now();
        if (!closed_ && wake && *wake <= now) registrar_.tick(now);
        flush();
      }
      tell();
    }
  }

  // When the registrar wants to look again, by the clock that gRPC waits by.
  std::chrono::system_clock::time_point deadline() {
    const std::lock_guard lock(mutex_);
    const auto wake = registrar_.wake();
    const auto wait = wake ? std::max<Duration>(*wake - clock_.now(), 0ns) : Duration{1h};
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(wait + 1us);
  }

  // Callbacks run here and nowhere else, without the lock.
  void tell() {
    std::vector<Event> events;
    std::vector<Gone> gone;
    {
      const std::lock_guard lock(mutex_);
      events.swap(events_);
      gone.swap(gone_);
    }
    if (options_.on_event) {
      for (const Event& event : events) options_.on_event(event);
    }
    if (options_.on_gone) {
      for (const Gone& one : gone) options_.on_gone(one);
    }
  }

  // ---- With the mutex held.

  // The server's thread may be asleep until a later moment than is now right, and has callbacks to
  // call.
  void wake() {
    if (closed_ || woken_.set) return;
    woken_.set = true;
    alarm_.Set(queue_.get(), std::chrono::system_clock::now(), &woken_);
  }

  v1::Coordinator::AsyncService& service() override { return service_; }
  grpc::ServerCompletionQueue* queue() override { return queue_.get(); }
  bool closed() const override { return closed_; }

  SessionId opened(wire::SessionCall* call) override {
    const SessionId session = ++sessions_;
    calls_[session] = call;
    registrar_.connected(session);
    return session;
  }

  void received(SessionId session, v1::FromWorker&& message) override {
    const Moment now = clock_.now();
    switch (message.message_case()) {
      case v1::FromWorker::kJoin:
        if (message.join().version() != kProtocol) {
          v1::ToWorker refusal;
          to_wire(ToWorker{Refused{
                      fmt::format("it speaks protocol {}, this coordinator {}: all must run "
                                  "the same Muster",
                                  message.join().version(), kProtocol),
                      false}},
                  refusal);
          calls_.at(session)->send(std::make_shared<const v1::ToWorker>(std::move(refusal)), true);
          break;
        }
        registrar_.join(now, session, from_wire(message.join()));
        break;
      case v1::FromWorker::kHeartbeat:
        registrar_.heartbeat(now, session, from_wire(message.heartbeat()));
        break;
      case v1::FromWorker::kAddresses:
        registrar_.offer_addresses(session, message.addresses().roster(),
                                   std::move(*message.mutable_addresses()->mutable_blob()));
        break;
      case v1::FromWorker::MESSAGE_NOT_SET:
        break;
    }
    flush();
  }

  void ended(SessionId session) override {
    calls_.erase(session);
    if (calls_.empty()) hung_up_.notify_all();
    registrar_.disconnected(clock_.now(), session);
    flush();
  }

  void exited(const v1::ExitedRequest& request) override {
    if (request.job() != options_.roster.job) return;
    registrar_.exited(clock_.now(), request.id(), request.process(), request.how());
  }

  void status(v1::StatusReply& reply) override {
    to_wire(status_of(clock_.now(), registrar_), reply);
  }

  // Hands what the registrar has to say to the streams.
  void flush() {
    std::shared_ptr<const v1::ToWorker> addresses;  // the same for all members: made once
    Blobs of;
    for (const Outgoing& out : registrar_.take_outgoing()) {
      const auto found = calls_.find(out.session);
      if (found == calls_.end()) continue;
      const auto* exchange = std::get_if<Addresses>(&out.message);
      std::shared_ptr<const v1::ToWorker> message;
      if (exchange && exchange->blobs && exchange->blobs == of) {
        message = addresses;
      } else {
        auto made = std::make_shared<v1::ToWorker>();
        to_wire(out.message, *made);
        message = std::move(made);
      }
      if (exchange && exchange->blobs) {
        addresses = message;
        of = exchange->blobs;
      }
      found->second->send(std::move(message), out.close);
    }
    for (Gone& one : registrar_.take_gone()) gone_.push_back(std::move(one));
    for (Event& event : registrar_.take_new_events()) events_.push_back(std::move(event));
  }

  // ---- Ending.

  void stop() {
    if (!server_) return;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      alarm_.Cancel();
    }
    // Cancels every stream: workers see their connection broken, and look for another coordinator.
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    thread_.join();
    drain();
  }

  void drain() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      const std::lock_guard lock(mutex_);
      static_cast<wire::Step*>(tag)->done(ok);
    }
  }

  const Clock& clock_;
  CoordinatorOptions options_;
  std::string address_;
  v1::Coordinator::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;

  std::condition_variable hung_up_;
  mutable std::mutex mutex_;  // all below
  Registrar registrar_;
  bool closed_ = false;
  SessionId sessions_ = 0;
  std::unordered_map<SessionId, wire::SessionCall*> calls_;
  std::vector<Event> events_;  // to be told
  std::vector<Gone> gone_;
  Woken woken_;
  grpc::Alarm alarm_;

  Thread thread_;
};

Coordinator::Coordinator(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Coordinator::~Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::start(CoordinatorOptions options,
                                                        const Clock& clock) {
  MUSTER_RETURN_IF_ERROR(options.roster.validate());
  auto server = std::make_unique<Server>(std::move(options), clock);
  MUSTER_RETURN_IF_ERROR(server->start());
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(server)));
}

std::string Coordinator::address() const { return server_->address(); }

void Coordinator::exited(const std::string& id, int64_t process, const std::string& how) {
  server_->exited(id, process, how);
}

bool Coordinator::end(const std::string& reason, Duration timeout) {
  return server_->end(reason, timeout);
}

StatusReport Coordinator::status() const { return server_->report(); }

uint64_t term_from_clock(const Clock& clock) {
  return static_cast<uint64_t>(clock.wall().time_since_epoch() / 1ms);
}

}  // namespace muster::roster
