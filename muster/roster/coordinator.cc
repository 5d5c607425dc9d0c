#include "muster/roster/coordinator.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "muster/base/thread.h"
#include "muster/roster/loop_clock.h"
#include "muster/roster/wire/calls.h"
#include "muster/roster/wire/channel.h"
#include "muster/roster/wire/message_bytes.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {

using namespace std::chrono_literals;

class Coordinator::Server final : public wire::CallHandler {
 public:
  Server(CoordinatorOptions options, const Clock& clock)
      : clock_(clock),
        options_(std::move(options)),
        time_(options_.roster.longest_wait()),
        registrar_(options_.roster, time_.now(clock.now())) {}

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
                   "cannot listen on {}: the port is in use (port 0 picks a free one), or the "
                   "address does not belong to this machine",
                   options_.address);
    }
    address_ = options_.address.substr(0, colon + 1) + std::to_string(port);
    const std::lock_guard lock(mutex_);
    expect_calls();
    teller_ = Thread("roster-events", [this] { tell(); });
    thread_ = Thread("roster-server", [this] { run(); });
    return {};
  }

  const std::string& address() const { return address_; }

  void exited(const std::string& id, int64_t process, const std::string& how) {
    const std::lock_guard lock(mutex_);
    registrar_.exited(now(), id, process, how);
    flush();
    wake();
  }

  bool end(const std::string& reason, Duration timeout) {
    std::unique_lock lock(mutex_);
    registrar_.stop(now(), reason);
    flush();
    wake();
    return hung_up_.wait_for(lock, timeout, [&] { return calls_.empty(); });
  }

  StatusReport report() const {
    const std::lock_guard lock(mutex_);
    auto report = status_of(clock_.now() - time_.lost(), registrar_);
    report.servers = options_.servers;
    return report;
  }

  Summary summary() const {
    const std::lock_guard lock(mutex_);
    const State& state = registrar_.state();
    return {state.current.waiting, state.ended.has_value(), state.current.members.size(),
            state.ended && state.ended->finished};
  }

  size_t others(const std::vector<std::string>& ids) const {
    const std::lock_guard lock(mutex_);
    const auto& workers = registrar_.state().workers;
    return workers.size() - static_cast<size_t>(std::ranges::count_if(
                                ids, [&](const std::string& id) { return workers.contains(id); }));
  }

 private:
  static constexpr int kMostAtOnce = 256;  // events between two decisions

  struct Woken final : wire::Completion {
    void done(bool) override { set = false; }
    bool set = false;  // an alarm that is set must not be set again
  };

  void expect_calls() {
    wire::SessionCall::expect(*this);
    using Exited = wire::QuickCall<v1::ExitedRequest, v1::ExitedReply>;
    using Asked = wire::QuickCall<v1::StatusRequest, v1::StatusReply>;
    using Offered = wire::QuickCall<v1::OfferRequest, v1::OfferReply>;
    Exited::expect(*this, &wire::Service::RequestExited,
                   [](CallHandler& handler, const v1::ExitedRequest& request, v1::ExitedReply&) {
                     handler.exited(request);
                   });
    Asked::expect(*this, &wire::Service::RequestStatus,
                  [](CallHandler& handler, const v1::StatusRequest&, v1::StatusReply& reply) {
                    handler.status(reply);
                  });
    Offered::expect(*this, &wire::Service::RequestOffer,
                    [](CallHandler& handler, const v1::OfferRequest&, v1::OfferReply& reply) {
                      handler.offer(reply);
                    });
  }

  // ---- The server's thread.

  void run() {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      auto next = queue_->AsyncNext(&tag, &ok, deadline());
      const std::lock_guard lock(mutex_);
      (void)now();  // first: if this loop was suspended, nobody else is to blame
      // All that is there is taken before anything is decided: a heartbeat that has arrived counts.
      registrar_.defer_decisions();
      for (int i = 0; next == grpc::CompletionQueue::GOT_EVENT; ++i) {
        static_cast<wire::Completion*>(tag)->done(ok);
        if (i == kMostAtOnce) break;
        next = queue_->AsyncNext(&tag, &ok, std::chrono::system_clock::time_point{});
      }
      const Moment time = now();
      registrar_.decide_now(time);
      const auto wake = registrar_.wake();
      if (!closed_ && wake && *wake <= time) registrar_.tick(time);
      flush();
      close_overdue(time);
      if (next == grpc::CompletionQueue::SHUTDOWN) return;
    }
  }

  // When the registrar wants to look again, by the clock that gRPC waits by; and often enough for
  // the LoopClock to notice that the process was suspended.
  std::chrono::system_clock::time_point deadline() {
    const std::lock_guard lock(mutex_);
    Duration wait = time_.longest_wait();
    if (const auto wake = registrar_.wake()) {
      wait = std::clamp<Duration>(time_.real(*wake) - clock_.now(), 0ns, wait);
    }
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(wait + 1us);
  }

  // ---- The events' thread. Callbacks run here and nowhere else, without the lock.

  void tell() {
    while (true) {
      std::vector<Event> events;
      std::vector<Gone> gone;
      std::vector<Issued> issued;
      {
        std::unique_lock lock(mutex_);
        happened_.wait(lock, [&] { return told_all_ || !events_.empty() || !gone_.empty(); });
        if (events_.empty() && gone_.empty()) return;
        events.swap(events_);
        gone.swap(gone_);
        issued.swap(issued_);  // each has an event too
      }
      // First who is gone: a launcher acts on it.
      if (options_.on_gone) {
        for (const Gone& one : gone) options_.on_gone(one);
      }
      if (options_.on_event) {
        for (const Event& event : events) options_.on_event(event);
      }
      if (options_.on_roster) {
        for (const Issued& one : issued) options_.on_roster(one);
      }
    }
  }

  // ---- With the mutex held.

  // The time by which workers are judged.
  Moment now() {
    const Duration before = time_.lost();
    const Moment moment = time_.now(clock_.now());
    if (time_.lost() != before && !closed_) registrar_.resumed(moment, time_.lost() - before);
    return moment;
  }

  // The server's thread may be waiting for a later moment than is now right.
  void wake() {
    if (closed_ || woken_.set) return;
    woken_.set = true;
    alarm_.Set(queue_.get(), std::chrono::system_clock::now(), &woken_);
  }

  wire::Service& service() override { return service_; }
  grpc::ServerCompletionQueue* queue() override { return queue_.get(); }
  bool closed() const override { return closed_; }

  SessionId opened(wire::SessionCall* call) override {
    const SessionId session = ++sessions_;
    calls_[session].call = call;
    close_later(session);
    registrar_.connected(session);
    return session;
  }

  void received(SessionId session, v1::FromWorker&& message) override {
    const Moment time = now();
    switch (message.message_case()) {
      case v1::FromWorker::kJoin:
        if (message.join().version() != kProtocol) {
          const auto refusal = std::make_shared<const ToWorker>(Refused{
              fmt::format("it speaks protocol {}, this coordinator {}: all must run the same "
                          "Muster",
                          message.join().version(), kProtocol),
              false});
          send(session, bytes_.of(refusal), true);
          break;
        }
        calls_.at(session).close_by.reset();
        registrar_.join(time, session, from_wire(message.join()));
        break;
      case v1::FromWorker::kHeartbeat:
        registrar_.heartbeat(time, session, from_wire(message.heartbeat()));
        break;
      case v1::FromWorker::kAddresses:
        registrar_.offer_addresses(time, session, message.addresses().roster(),
                                   message.addresses().group(),
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
    registrar_.disconnected(now(), session);
    flush();
  }

  void exited(const v1::ExitedRequest& request) override {
    if (request.job() != options_.roster.job) return;
    registrar_.exited(now(), request.id(), request.process(), request.how());
  }

  void status(v1::StatusReply& reply) override {
    auto report = status_of(now(), registrar_);
    report.servers = options_.servers;
    to_wire(report, reply);
  }

  void offer(v1::OfferReply& reply) override { to_wire(options_.offer, reply); }

  // Hands what the registrar has to say to the streams.
  void flush() {
    for (const Outgoing& out : registrar_.take_outgoing()) {
      if (calls_.contains(out.session)) send(out.session, bytes_.of(out.message), out.close);
    }
    for (Gone& one : registrar_.take_gone()) {
      one.when = clock_.now();
      gone_.push_back(std::move(one));
    }
    for (Event& event : registrar_.take_new_events()) {
      if (events_.size() < CoordinatorOptions::kMostEvents) events_.push_back(std::move(event));
    }
    for (Issued& one : registrar_.take_issued()) {
      if (issued_.size() < CoordinatorOptions::kMostEvents) issued_.push_back(std::move(one));
    }
    if (!gone_.empty() || !events_.empty()) happened_.notify_one();
  }

  void send(SessionId session, const grpc::ByteBuffer& message, bool close) {
    calls_.at(session).call->send(message, close);
    // The other end is expected to hang up: see SessionCall::written.
    if (close) close_later(session);
  }

  // The session ends after session_timeout, unless its close_by is reset before.
  void close_later(SessionId session) {
    const Moment when = now() + options_.session_timeout;
    calls_.at(session).close_by = when;
    close_queue_.emplace_back(when, session);
  }

  void close_overdue(Moment time) {
    while (!closed_ && !close_queue_.empty() && close_queue_.front().first <= time) {
      const auto found = calls_.find(close_queue_.front().second);
      close_queue_.pop_front();
      if (found == calls_.end()) continue;
      const auto& [call, close_by] = found->second;
      if (close_by && *close_by <= time) call->cancel();
    }
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
    {
      const std::lock_guard lock(mutex_);
      told_all_ = true;
      happened_.notify_one();
    }
    teller_.join();
  }

  void drain() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      const std::lock_guard lock(mutex_);
      static_cast<wire::Completion*>(tag)->done(ok);
    }
  }

  const Clock& clock_;
  CoordinatorOptions options_;
  std::string address_;
  wire::Service service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;

  std::condition_variable hung_up_;
  std::condition_variable happened_;
  mutable std::mutex mutex_;  // all below
  LoopClock time_;
  Registrar registrar_;
  bool closed_ = false;
  SessionId sessions_ = 0;
  struct OpenSession {
    wire::SessionCall* call = nullptr;
    std::optional<Moment> close_by;  // it has not asked to join yet, or was told its last message
  };
  std::unordered_map<SessionId, OpenSession> calls_;
  std::deque<std::pair<Moment, SessionId>> close_queue_;  // by time; an entry may be outdated
  wire::MessageBytes bytes_;
  std::vector<Event> events_;  // for the callbacks
  std::vector<Gone> gone_;
  std::vector<Issued> issued_;
  bool told_all_ = false;  // none will follow
  Woken woken_;
  grpc::Alarm alarm_;

  Thread teller_;
  Thread thread_;
};

Coordinator::Coordinator(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Coordinator::~Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::start(CoordinatorOptions options,
                                                        const Clock& clock) {
  MUSTER_RETURN_IF_ERROR(options.roster.validate());
  if (options.roster.nonce == 0) options.roster.nonce = std::random_device{}();
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
Coordinator::Summary Coordinator::summary() const { return server_->summary(); }
size_t Coordinator::others(const std::vector<std::string>& ids) const {
  return server_->others(ids);
}

uint64_t term_from_clock(const Clock& clock) {
  return static_cast<uint64_t>(clock.wall().time_since_epoch() / 1ms);
}

}  // namespace muster::roster
