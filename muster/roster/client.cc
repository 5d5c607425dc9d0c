#include "muster/roster/client.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "muster/base/thread.h"
#include "muster/roster/wire/stream.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {

using namespace std::chrono_literals;

class Client::Connection final : public wire::Stream::Listener {
 public:
  Connection(ClientOptions options, const Clock& clock)
      : clock_(clock),
        options_(std::move(options)),
        follower_(options_.follower, clock.now()),
        thread_("roster-client", [this] { run(); }) {}

  ~Connection() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      stop_by_ = clock_.now() + 300ms;
      if (stream_) stream_->close();
      wake();
    }
    thread_.join();
  }

  // For what orders nothing: it is called for every lane.
  template <typename Look>
  auto look(Look body) {
    const std::lock_guard lock(mutex_);
    if constexpr (std::is_invocable_v<Look, Follower&, Moment>) {
      return body(follower_, clock_.now());
    } else {
      return body(follower_);
    }
  }

  // Changes the Follower, and carries out what it orders.
  template <typename Use>
  auto use(Use body) {
    const std::lock_guard lock(mutex_);
    if constexpr (std::is_void_v<decltype(body(follower_, Moment{}))>) {
      body(follower_, clock_.now());
      carry_out();
    } else {
      auto result = body(follower_, clock_.now());
      carry_out();
      return result;
    }
  }

  Instruction next(Duration timeout) {
    const Moment until = clock_.now() + timeout;
    std::unique_lock lock(mutex_);
    while (true) {
      const Moment now = clock_.now();
      Instruction instruction = follower_.next(now);
      carry_out();
      if (instruction.kind != Instruction::Kind::kWait || now >= until) return instruction;
      changed_.wait_for(lock, until - now);
    }
  }

  Result<std::vector<std::string>> exchange(RosterNumber roster, const std::string& group,
                                            std::string blob, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    addresses_ = {};
    // The order to abort may have come before this call.
    if (aborted_ != roster) {
      follower_.offer(clock_.now(), roster, group, std::move(blob));
      carry_out();
      changed_.wait(lock, stop, [&] { return has(roster, group) || aborted_ == roster; });
    }
    if (has(roster, group)) return *addresses_.blobs;
    if (aborted_ == roster) return Error(ErrorKind::kIo, "{}", abort_reason_);
    return Error(ErrorKind::kInterrupted, "the exchange of addresses was stopped");
  }

 private:
  bool has(RosterNumber roster, const std::string& group) const {
    return addresses_.roster == roster && addresses_.group == group;
  }

  // ---- The client's thread.

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_ || stream_ || !past_.empty() || alarm_set_) {
      if (!stopping_) {
        follower_.tick(clock_.now());
        carry_out();
      } else if (stream_ && clock_.now() >= stop_by_) {
        stream_->cancel();
      }
      const auto deadline =
          std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(pause());
      call_back(lock);
      lock.unlock();
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue_.AsyncNext(&tag, &ok, deadline);
      lock.lock();
      if (next == grpc::CompletionQueue::GOT_EVENT) {
        if (tag == nullptr) {
          alarm_set_ = false;
        } else {
          static_cast<wire::Stream::Completion*>(tag)->done(ok);
        }
      }
      std::erase_if(past_, [](const auto& stream) { return stream->idle(); });
    }
    lock.unlock();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Duration pause() const {
    const Moment now = clock_.now();
    if (stopping_) return std::max<Duration>(stop_by_ - now, 1ms);
    const auto wake = follower_.wake();
    return wake ? std::max<Duration>(*wake - now, 0ns) + 1us : Duration{1h};
  }

  void call_back(std::unique_lock<std::mutex>& lock) {
    const auto aborts = std::exchange(aborts_, {});
    const auto stuck = std::exchange(stuck_, std::nullopt);
    if (aborts.empty() && !stuck) return;
    lock.unlock();
    for (const Abort& abort : aborts) {
      if (options_.on_abort) options_.on_abort(abort.roster, abort.reason);
    }
    if (stuck && options_.on_stuck) options_.on_stuck(*stuck);
    lock.lock();
  }

  // ---- With the mutex held.

  // Another thread has changed what the client's thread waits for.
  void wake() {
    if (alarm_set_) return;
    alarm_set_ = true;
    alarm_.Set(&queue_, std::chrono::system_clock::now(), nullptr);
  }

  void carry_out() {
    for (FollowerAction& action : follower_.take_actions()) {
      std::visit([this](auto& one) { carry_out(one); }, action);
    }
    changed_.notify_all();
    // This may be the worker's thread: heartbeats and reconnections may be due earlier now.
    const auto due = follower_.wake();
    if (due && (!woken_for_ || *due < *woken_for_)) wake();
    woken_for_ = due;
  }
  void carry_out(Connect&) {
    const auto& addresses = options_.addresses;
    if (stopping_) return;
    stream_ = std::make_unique<wire::Stream>(addresses[tries_++ % addresses.size()], queue_, *this);
  }
  void carry_out(Disconnect&) {
    if (!stream_) return;
    stream_->cancel();
    past_.push_back(std::move(stream_));
  }
  void carry_out(Send& send) {
    if (!stream_) return;
    v1::FromWorker message;
    to_wire(send.message, message);
    stream_->send(message);
  }
  void carry_out(Abort& abort) {
    aborted_ = abort.roster;
    abort_reason_ = abort.reason;
    aborts_.push_back(std::move(abort));
    wake();
  }
  void carry_out(AddressesReady& ready) { addresses_ = std::move(ready); }
  void carry_out(ExitStuck& stuck) { stuck_ = std::move(stuck.reason); }

  void on_open(wire::Stream& stream) override {
    if (&stream != stream_.get()) return;
    follower_.connected(clock_.now());
    carry_out();
  }

  void on_broken(wire::Stream& stream) override {
    if (&stream != stream_.get()) return;
    past_.push_back(std::move(stream_));
    follower_.disconnected(clock_.now());
    carry_out();
  }

  void on_message(wire::Stream& stream, v1::ToWorker&& message) override {
    if (&stream != stream_.get()) return;
    if (const auto known = from_wire(std::move(message))) {
      follower_.received(clock_.now(), *known);
      carry_out();
    }
  }

  const Clock& clock_;
  const ClientOptions options_;
  grpc::CompletionQueue queue_;

  mutable std::mutex mutex_;  // all below
  std::condition_variable_any changed_;
  Follower follower_;
  bool stopping_ = false;
  Moment stop_by_;
  grpc::Alarm alarm_;
  bool alarm_set_ = false;
  std::optional<Moment> woken_for_;                  // what the client's thread waits for at most
  std::unique_ptr<wire::Stream> stream_;             // null: none, or none yet
  std::vector<std::unique_ptr<wire::Stream>> past_;  // broken, with operations still out
  size_t tries_ = 0;
  AddressesReady addresses_;  // of the last exchange that was complete
  RosterNumber aborted_ = 0;  // the last roster whose group was to be aborted
  std::string abort_reason_;
  std::vector<Abort> aborts_;  // for on_abort
  std::optional<std::string> stuck_;

  Thread thread_;
};

Client::Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::start(ClientOptions options, const Clock& clock) {
  if (options.addresses.empty())
    return Error(ErrorKind::kUsage, "no address of a coordinator is given");
  if (options.follower.seed == 0) {
    std::random_device random;
    options.follower.seed = uint64_t{random()} << 32 | random();
  }
  return std::unique_ptr<Client>(
      new Client(std::make_unique<Connection>(std::move(options), clock)));
}

Instruction Client::next(Duration timeout) { return connection_->next(timeout); }

Result<std::vector<std::string>> Client::exchange(RosterNumber roster, const std::string& group,
                                                  std::string blob, const std::stop_token& stop) {
  return connection_->exchange(roster, group, std::move(blob), stop);
}

void Client::formed(RosterNumber roster) {
  connection_->use([&](Follower& follower, Moment now) { follower.formed(now, roster); });
}

void Client::failed(RosterNumber roster, const std::string& suspect, const std::string& trouble,
                    const std::string& faulty) {
  connection_->use([&](Follower& follower, Moment now) {
    follower.failed(now, roster, suspect, trouble, faulty);
  });
}

uint8_t Client::commit_byte() const {
  return connection_->look([](Follower& follower) { return follower.commit_byte(); });
}

bool Client::committed(uint64_t step, double lane_seconds, uint8_t agreed) {
  return connection_->use([&](Follower& follower, Moment now) {
    return follower.committed(now, step, lane_seconds, agreed);
  });
}

void Client::set_activity(Activity activity) {
  connection_->look([&](Follower& follower, Moment now) { follower.set_activity(now, activity); });
}

void Client::progress() {
  connection_->look([](Follower& follower, Moment now) { follower.progress(now); });
}

void Client::leave() {
  connection_->use([](Follower& follower, Moment now) { follower.leave(now); });
}

void Client::finished() {
  connection_->use([](Follower& follower, Moment now) { follower.finished(now); });
}

WorkerKey Client::key() const {
  return connection_->look([](Follower& follower) { return follower.key(); });
}
RosterPtr Client::newest() const {
  return connection_->look([](Follower& follower) { return follower.newest(); });
}
bool Client::connected() const {
  return connection_->look([](Follower& follower) { return follower.welcome(); });
}
std::string Client::reason() const {
  return connection_->look([](Follower& follower) { return follower.reason(); });
}

}  // namespace muster::roster
