#include "muster/roster/client.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "muster/base/thread.h"
#include "muster/roster/registrar.h"
#include "muster/roster/wire/stream.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {

using namespace std::chrono_literals;

class Client::Line final : public wire::Stream::Listener {
 public:
  Line(ClientOptions options, const Clock& clock)
      : clock_(clock), options_(std::move(options)), random_(std::random_device{}()) {
    key_ = options_.join.key;
    key_.incarnation = draw();
    interval_ = options_.heartbeat;
    backoff_ = options_.least_backoff;
    next_try_ = next_beat_ = clock.now();
    thread_ = Thread("roster-client", [this] { run(); });
  }

  ~Line() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      stop_by_ = clock_.now() + 300ms;
      if (stream_) stream_->close();
      wake();
    }
    thread_.join();
  }

  // ---- For the worker's threads.

  WorkerKey key() const {
    const std::lock_guard lock(mutex_);
    return key_;
  }
  RosterPtr newest() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }
  bool connected() const {
    const std::lock_guard lock(mutex_);
    return welcome_;
  }
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  Tiding wait(RosterNumber than, Duration timeout, bool until_released) {
    std::unique_lock lock(mutex_);
    Tiding tiding = Tiding::kTimeout;
    changed_.wait_for(lock, timeout, [&] {
      if (standing_ == Standing::kEnded) {
        tiding = finished_ ? Tiding::kFinished : Tiding::kStopped;
      } else if (standing_ == Standing::kOut) {
        tiding = Tiding::kOut;
      } else if (standing_ == Standing::kRefused) {
        tiding = Tiding::kRefused;
      } else if (until_released && released_) {
        tiding = Tiding::kReleased;
      } else if (!until_released && newest_->number > than) {
        tiding = Tiding::kRoster;
      } else {
        return false;
      }
      return true;
    });
    return tiding;
  }

  Result<std::vector<std::string>> exchange(RosterNumber roster, std::string blob, Duration timeout,
                                            const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    offer_ = Offer{roster, std::move(blob), std::nullopt};
    send_offer();
    const auto over = [&] {
      return offer_->answer || newest_->number > roster || standing_ != Standing::kUp;
    };
    changed_.wait_for(lock, stop, timeout, over);
    const Offer offer = *std::exchange(offer_, std::nullopt);
    if (offer.answer && offer.answer->blobs) return *offer.answer->blobs;
    if (standing_ == Standing::kEnded) return Error(ErrorKind::kIo, "the job is over: {}", reason_);
    if (standing_ != Standing::kUp) return Error(ErrorKind::kIo, "this worker is out: {}", reason_);
    if (newest_->number > roster) {
      return Error(ErrorKind::kIo, "roster {} has taken the place of {}: {}",
                   sequence_of(newest_->number), sequence_of(roster), newest_->reason);
    }
    if (offer.answer) return Error(ErrorKind::kIo, "{}", offer.answer->reason);
    if (stop.stop_requested()) {
      return Error(ErrorKind::kInterrupted, "the exchange of addresses was stopped");
    }
    return Error(ErrorKind::kIo,
                 "not all members of roster {} gave their addresses within {:.1f} s",
                 sequence_of(roster), seconds(timeout));
  }

  // Changes what heartbeats say; sends one at once if `change` says that it matters.
  template <typename Change>
  void update(Change change) {
    const std::lock_guard lock(mutex_);
    if (change(beat_)) send_beat();
  }

  void ask_in_again() {
    const std::lock_guard lock(mutex_);
    if (standing_ != Standing::kOut) return;
    standing_ = Standing::kUp;
    reason_.clear();
    key_.incarnation = draw();
    const bool leaving = beat_.leaving;
    beat_ = {};
    beat_.leaving = leaving;
    next_try_ = clock_.now();
    wake();
  }

 private:
  enum class Standing : uint8_t { kUp, kOut, kRefused, kEnded };
  struct Offer {
    RosterNumber roster = 0;
    std::string blob;
    std::optional<Addresses> answer;
  };

  uint64_t draw() { return std::uniform_int_distribution<uint64_t>(1)(random_); }

  // ---- The client's thread.

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_ || stream_ || !past_.empty() || alarm_set_) {
      if (!stopping_) {
        attend();
      } else if (stream_ && clock_.now() >= stop_by_) {
        stream_->cancel();
      }
      const auto deadline =
          std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(pause());
      lock.unlock();
      void* tag = nullptr;
      bool ok = false;
      const auto next = queue_.AsyncNext(&tag, &ok, deadline);
      lock.lock();
      if (next == grpc::CompletionQueue::GOT_EVENT) {
        if (tag == nullptr) {
          alarm_set_ = false;
        } else {
          static_cast<wire::Stream::Step*>(tag)->done(ok);
        }
      }
      std::erase_if(past_, [](const auto& stream) { return stream->idle(); });
      call_back(lock);
    }
    lock.unlock();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // What time asks for: connecting, heartbeats.
  void attend() {
    const Moment now = clock_.now();
    if (!stream_ && standing_ == Standing::kUp && now >= next_try_) {
      const auto& addresses = options_.addresses;
      stream_ =
          std::make_unique<wire::Stream>(addresses[tries_++ % addresses.size()], queue_, *this);
    }
    if (welcome_ && now >= next_beat_) send_beat();
  }

  Duration pause() const {
    const Moment now = clock_.now();
    if (stopping_) return std::max<Duration>(stop_by_ - now, 1ms);
    Duration result = 1h;
    if (welcome_) result = std::min(result, next_beat_ - now);
    if (!stream_ && standing_ == Standing::kUp) result = std::min(result, next_try_ - now);
    return std::max<Duration>(result, 0ns) + 1us;
  }

  // Another thread has changed what the client's thread waits for.
  void wake() {
    if (alarm_set_) return;
    alarm_set_ = true;
    alarm_.Set(&queue_, std::chrono::system_clock::now(), nullptr);
  }

  void call_back(std::unique_lock<std::mutex>& lock) {
    const auto rosters = std::exchange(news_, {});
    const auto out = std::exchange(out_news_, std::nullopt);
    const auto ended = std::exchange(ended_news_, std::nullopt);
    if (rosters.empty() && !out && !ended) return;
    lock.unlock();
    if (options_.on_roster) {
      for (const RosterPtr& roster : rosters) options_.on_roster(roster);
    }
    if (out && options_.on_out) options_.on_out(*out);
    if (ended && options_.on_ended) options_.on_ended(*ended);
    lock.lock();
  }

  // ---- With the mutex held.

  void on_open(wire::Stream& stream) override {
    streamed_ = {};
    // It may have been in a roster that never reached it, and be out by now. A worker that holds
    // none asks in as another each time, so it need not know.
    if (newest_->number == 0) key_.incarnation = draw();
    JoinRequest request = options_.join;
    request.key = key_;
    request.held = *newest_;
    request.highest = highest_;
    v1::FromWorker message;
    to_wire(request, *message.mutable_join());
    stream.send(message);
  }

  void on_broken(wire::Stream& stream) override {
    if (&stream != stream_.get()) return;
    past_.push_back(std::move(stream_));
    welcome_ = false;
    // A spread of one half, so that a thousand workers do not come back in step.
    const auto spread = std::uniform_real_distribution<double>(0.75, 1.25)(random_);
    next_try_ = clock_.now() +
                Duration{static_cast<int64_t>(static_cast<double>(backoff_.count()) * spread)};
    backoff_ = std::min(2 * backoff_, options_.longest_backoff);
    changed_.notify_all();
  }

  void on_message(wire::Stream& stream, v1::ToWorker&& message) override {
    if (&stream != stream_.get()) return;
    switch (message.message_case()) {
      case v1::ToWorker::kWelcome:
        welcome_ = true;
        backoff_ = options_.least_backoff;
        if (message.welcome().heartbeat_ns() > 0)
          interval_ = Duration{message.welcome().heartbeat_ns()};
        send_beat();
        send_offer();
        break;
      case v1::ToWorker::kRefused:
        reason_ = message.refused().reason();
        if (!message.refused().retry()) standing_ = Standing::kRefused;
        stream.cancel();
        break;
      case v1::ToWorker::kOut:
        go_out(message.out().reason());
        stream.cancel();
        break;
      case v1::ToWorker::kRoster:
        take_roster(stream, from_wire(message.roster()));
        break;
      case v1::ToWorker::kAddresses: {
        Addresses addresses = from_wire(std::move(*message.mutable_addresses()));
        if (offer_ && offer_->roster == addresses.roster) offer_->answer = std::move(addresses);
        break;
      }
      case v1::ToWorker::kReleased:
        released_ = true;
        break;
      case v1::ToWorker::kEnded:
        standing_ = Standing::kEnded;
        finished_ = message.ended().finished();
        reason_ = message.ended().reason();
        welcome_ = false;
        ended_news_ = Ended{finished_, reason_};
        stream.cancel();
        break;
      case v1::ToWorker::MESSAGE_NOT_SET:
        break;
    }
    changed_.notify_all();
  }

  void go_out(const std::string& reason) {
    standing_ = Standing::kOut;
    reason_ = reason;
    welcome_ = released_ = false;
    newest_ = std::make_shared<const Roster>();
    out_news_ = reason;
  }

  void take_roster(wire::Stream& stream, const RosterDiff& diff) {
    auto next = apply(streamed_, diff);
    if (!next.ok()) {
      // Not what was sent: begin again, and all of it will come.
      stream.cancel();
      return;
    }
    streamed_ = std::move(*next);
    // A coordinator that does not know ours yet: it will, from our heartbeat.
    if (streamed_.number <= newest_->number) return;
    newest_ = std::make_shared<const Roster>(streamed_);
    highest_ = std::max(highest_, streamed_.number);
    news_.push_back(newest_);
    send_beat();
  }

  void send_beat() {
    next_beat_ = clock_.now() + interval_;
    if (!welcome_) return;
    beat_.known = newest_->number;
    beat_.sequence = ++beats_;
    v1::FromWorker message;
    to_wire(beat_, *message.mutable_heartbeat());
    stream_->send(message);
  }

  void send_offer() {
    if (!welcome_ || !offer_ || offer_->answer) return;
    v1::FromWorker message;
    message.mutable_addresses()->set_roster(offer_->roster);
    message.mutable_addresses()->set_blob(offer_->blob);
    stream_->send(message);
  }

  const Clock& clock_;
  const ClientOptions options_;
  grpc::CompletionQueue queue_;

  mutable std::mutex mutex_;  // all below
  std::condition_variable_any changed_;
  std::mt19937_64 random_;
  bool stopping_ = false;
  Moment stop_by_;
  grpc::Alarm alarm_;
  bool alarm_set_ = false;
  std::unique_ptr<wire::Stream> stream_;             // null: none, or none yet
  std::vector<std::unique_ptr<wire::Stream>> past_;  // broken, with operations still out
  size_t tries_ = 0;
  Moment next_try_;
  Duration backoff_{0};

  WorkerKey key_;
  Standing standing_ = Standing::kUp;
  std::string reason_;
  bool welcome_ = false;
  bool released_ = false;
  bool finished_ = false;  // with kEnded
  Roster streamed_;        // the base of the next difference in this stream
  RosterPtr newest_ = std::make_shared<const Roster>();
  RosterNumber highest_ = 0;
  Heartbeat beat_;
  uint64_t beats_ = 0;
  Duration interval_{0};
  Moment next_beat_;
  std::optional<Offer> offer_;
  std::vector<RosterPtr> news_;  // for on_roster
  std::optional<std::string> out_news_;
  std::optional<Ended> ended_news_;

  Thread thread_;
};

Client::Client(std::unique_ptr<Line> line) : line_(std::move(line)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::start(ClientOptions options, const Clock& clock) {
  if (options.addresses.empty())
    return Error(ErrorKind::kUsage, "no address of a coordinator is given");
  return std::unique_ptr<Client>(new Client(std::make_unique<Line>(std::move(options), clock)));
}

WorkerKey Client::key() const { return line_->key(); }
RosterPtr Client::newest() const { return line_->newest(); }
bool Client::connected() const { return line_->connected(); }
std::string Client::reason() const { return line_->reason(); }

Tiding Client::wait(RosterNumber than, Duration timeout, bool until_released) {
  return line_->wait(than, timeout, until_released);
}

Result<std::vector<std::string>> Client::exchange(RosterNumber roster, std::string blob,
                                                  Duration timeout, const std::stop_token& stop) {
  return line_->exchange(roster, std::move(blob), timeout, stop);
}

void Client::set_activity(Activity activity) {
  line_->update([&](Heartbeat& beat) {
    const bool done = activity == Activity::kDone && beat.activity != activity;
    beat.activity = activity;
    ++beat.progress;
    return done;
  });
}

void Client::set_group(RosterNumber roster, Activity activity) {
  line_->update([&](Heartbeat& beat) {
    const bool changed = std::exchange(beat.group, roster) != roster;
    beat.activity = activity;
    ++beat.progress;
    return changed;
  });
}

void Client::committed(uint64_t step, double lane_seconds) {
  line_->update([&](Heartbeat& beat) {
    beat.step = step;
    beat.lane_seconds = lane_seconds;
    ++beat.progress;
    return false;
  });
}

void Client::progress() {
  line_->update([](Heartbeat& beat) {
    ++beat.progress;
    return false;
  });
}

void Client::broken(RosterNumber roster, const std::string& suspect, const std::string& trouble) {
  line_->update([&](Heartbeat& beat) {
    beat.group = 0;
    beat.broken = roster;
    beat.suspect = suspect;
    beat.trouble = trouble;
    beat.activity = Activity::kIdle;
    ++beat.progress;
    return true;
  });
}

void Client::leave() {
  line_->update([](Heartbeat& beat) { return !std::exchange(beat.leaving, true); });
}

void Client::finished() {
  line_->update([](Heartbeat& beat) { return !std::exchange(beat.finished, true); });
}

void Client::ask_in_again() { line_->ask_in_again(); }

}  // namespace muster::roster
