#include "muster/roster/crowd/crowd.h"

#include <algorithm>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "muster/roster/wire/wire.h"

namespace muster::roster {

using namespace std::chrono_literals;

namespace {

// What comm offers: an address, a port and a token, and the id of the host.
constexpr size_t kBlobBytes = 80;

// gRPC looks at one connection each time it is asked, and says nothing if a ping was all it found.
// So only if it has said nothing this often, somebody may take time for a message: a connection on
// which pings are not answered is closed.
constexpr int kIdlePolls = 32;

FollowerOptions follower_options(const std::string& job, size_t number, uint64_t seed) {
  FollowerOptions options;
  options.join.job = job;
  options.join.key.id = std::to_string(number);
  options.join.host = fmt::format("host{}", number / 16);
  options.join.process = static_cast<int64_t>(number) + 1;
  options.join.fingerprint.kernels = "the same for all";
  options.seed = seed;
  return options;
}

uint64_t draw_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random() | 1;
}

}  // namespace

struct Crowd::Worker final : wire::Stream::Listener {
  Worker(Crowd& owner, FollowerOptions options, Moment now)
      : crowd(owner), follower(std::move(options), now) {}

  void on_open(wire::Stream& from) override {
    if (&from != stream.get()) return;
    follower.connected(crowd.clock_.now());
    crowd.touch(*this);
  }
  void on_message(wire::Stream& from, v1::ToWorker&& message) override {
    if (&from != stream.get()) return;
    if (message.has_roster()) {
      arrived = crowd.clock_.now();
      arrived_number = message.roster().number();
    }
    crowd.inbox_.emplace_back(this, std::move(message));
  }
  void on_broken(wire::Stream& from) override {
    if (&from != stream.get()) return;
    crowd.past_streams_.push_back(std::move(stream));
    follower.disconnected(crowd.clock_.now());
    crowd.touch(*this);
  }

  Crowd& crowd;
  Follower follower;
  std::unique_ptr<wire::Stream> stream;
  std::optional<Moment> timer;
  RosterNumber forming = 0;
  RosterNumber group = 0;
  RosterNumber aborted = 0;
  RosterNumber ready = 0;  // addresses have come
  uint64_t step = 0;
  RosterNumber arrived_number = 0;
  Moment arrived;
};

Crowd::Crowd(std::string address, std::string job, const Clock& clock)
    : address_(std::move(address)),
      job_(std::move(job)),
      clock_(clock),
      thread_("roster-crowd", [this] { run(); }) {}

Crowd::~Crowd() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Crowd::add(size_t workers) {
  const std::lock_guard lock(mutex_);
  const Moment now = clock_.now();
  for (size_t i = 0; i < workers; ++i) {
    auto worker =
        std::make_unique<Worker>(*this, follower_options(job_, added_++, draw_seed()), now);
    touch(*worker);
    workers_.push_back(std::move(worker));
  }
}

bool Crowd::together() const {
  return newest_size_ == workers_.size() && in_group_ == workers_.size();
}

Status Crowd::wait_together(Duration timeout) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, [&] { return together(); })) return {};
  return Error(ErrorKind::kIo,
               "after {} s, {} of {} workers are in the group of the newest roster, which has {}",
               seconds(timeout), in_group_, workers_.size(), newest_size_);
}

Result<Crowd::Loss> Crowd::lose_one(Duration timeout) {
  std::unique_lock lock(mutex_);
  const RosterNumber before = newest_;
  std::unique_ptr<Worker> lost = std::move(workers_.front());
  workers_.pop_front();
  if (lost->group == newest_) --in_group_;
  const Moment begin = clock_.now();
  drop_stream(*lost);
  if (lost->timer) timers_.erase({*lost->timer, lost.get()});
  std::erase_if(inbox_, [&](const auto& entry) { return entry.first == lost.get(); });
  past_workers_.push_back(std::move(lost));
  if (!changed_.wait_for(lock, timeout, [&] { return newest_ > before && together(); })) {
    return Error(ErrorKind::kIo, "{} s after a loss, {} of {} workers are in the next group",
                 seconds(timeout), in_group_, workers_.size());
  }
  std::vector<Duration> arrivals;
  for (const auto& worker : workers_) arrivals.push_back(worker->arrived - begin);
  std::ranges::sort(arrivals);
  return Loss{arrivals[arrivals.size() / 2], arrivals.back(), clock_.now() - begin};
}

// ---- The thread.

void Crowd::run() {
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopping_) {
      for (const auto& worker : workers_) drop_stream(*worker);
      inbox_.clear();
      timers_.clear();
      if (past_streams_.empty()) break;
    }
    const Moment now = clock_.now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      Worker& worker = *timers_.begin()->second;
      worker.follower.progress(now);
      worker.follower.tick(now);
      touch(worker);
    }
    // What has arrived is taken before anybody looks into it: see inbox_. The long past means
    // "do not wait", where now would be rounded up to a millisecond.
    std::chrono::system_clock::time_point deadline{};
    if (inbox_.empty()) {
      Duration wait = 50ms;
      if (!timers_.empty()) wait = std::min(wait, timers_.begin()->first - now);
      deadline = std::chrono::system_clock::now() +
                 std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
    }
    lock.unlock();
    void* tag = nullptr;
    bool ok = false;
    const auto next = queue_.AsyncNext(&tag, &ok, deadline);
    lock.lock();
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<wire::Stream::Completion*>(tag)->done(ok);
    } else if (!inbox_.empty() && ++idle >= kIdlePolls) {
      idle = 0;
      auto [worker, message] = std::move(inbox_.front());
      inbox_.pop_front();
      if (const auto known = from_wire(std::move(message))) {
        worker->follower.received(clock_.now(), *known);
        touch(*worker);
      }
    }
    std::erase_if(past_streams_, [](const auto& stream) { return stream->idle(); });
  }
  lock.unlock();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

// ---- With the mutex held.

void Crowd::drop_stream(Worker& worker) {
  if (!worker.stream) return;
  worker.stream->cancel();
  past_streams_.push_back(std::move(worker.stream));
}

// To be called after every use of its Follower: does what it orders, moves the worker on, and sets
// its timer.
void Crowd::touch(Worker& worker) {
  do {
    for (FollowerAction& action : worker.follower.take_actions()) carry_out(worker, action);
  } while (work(worker));
  if (worker.timer) timers_.erase({*worker.timer, &worker});
  worker.timer = worker.follower.wake();
  if (worker.timer) timers_.insert({*worker.timer, &worker});
  if (together()) changed_.notify_all();
}

void Crowd::carry_out(Worker& worker, FollowerAction& action) {
  if (std::holds_alternative<Connect>(action)) {
    worker.stream = std::make_unique<wire::Stream>(address_, queue_, worker);
  } else if (std::holds_alternative<Disconnect>(action)) {
    drop_stream(worker);
  } else if (const auto* send = std::get_if<Send>(&action)) {
    v1::FromWorker message;
    to_wire(send->message, message);
    if (worker.stream) worker.stream->send(message);
  } else if (const auto* abort = std::get_if<Abort>(&action)) {
    worker.aborted = abort->roster;
  } else if (const auto* ready = std::get_if<AddressesReady>(&action)) {
    worker.ready = ready->roster;
  }
}

// One move of what a worker's own thread does; false: nothing is to be done.
bool Crowd::work(Worker& worker) {
  const Moment now = clock_.now();
  Follower& follower = worker.follower;
  const auto leave_group = [&] {
    if (worker.group != 0 && worker.group == newest_) --in_group_;
    worker.group = worker.forming = 0;
  };
  const RosterNumber at = std::max(worker.forming, worker.group);
  if (at != 0 && worker.aborted == at) {
    leave_group();
    follower.failed(now, at, "", "told to abort");
    return true;
  }
  if (worker.forming != 0) {
    if (worker.ready != worker.forming) return false;
    follower.formed(now, worker.forming);
    worker.group = std::exchange(worker.forming, 0);
    if (worker.group == newest_) ++in_group_;
    return true;
  }
  if (worker.group != 0) {
    // There is nobody to agree with: each says for all that a newer roster is known.
    if (follower.newest()->number <= worker.group) return false;
    if (follower.committed(now, ++worker.step, 0.1, 1)) leave_group();
    return true;
  }
  const Instruction next = follower.next(now);
  if (next.kind == Instruction::Kind::kRejoined) return true;
  if (next.kind != Instruction::Kind::kForm) return false;
  worker.forming = next.roster->number;
  if (worker.forming > newest_) {
    newest_ = worker.forming;
    newest_size_ = next.roster->members.size();
    in_group_ = 0;
  }
  follower.offer(now, worker.forming, std::string(kTrainers), std::string(kBlobBytes, 'a'));
  return true;
}

}  // namespace muster::roster
