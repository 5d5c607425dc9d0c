#include "muster/store/retry.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "muster/base/text.h"
#include "muster/store/url.h"

namespace muster::store {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

Error interrupted() { return Error(ErrorKind::kInterrupted, "a request to the store was stopped"); }

// Ends when either of two others does.
class EitherStop {
 public:
  EitherStop(const std::stop_token& a, const std::stop_token& b)
      : on_a_(a, Request{&source_}), on_b_(b, Request{&source_}) {}
  std::stop_token token() const { return source_.get_token(); }

 private:
  struct Request {
    std::stop_source* source;
    void operator()() const { source->request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Request> on_a_;
  std::stop_callback<Request> on_b_;
};

}  // namespace

// A read that is under way. The first request fills the caller's buffer, the second one `bytes`, so
// a second request that nobody needs any more may end when it will.
struct RetryStore::HedgedRead {
  Object object;
  uint64_t offset = 0;
  size_t length = 0;
  Moment due;  // for the second request

  // Under RetryStore::mutex_, except that `bytes` belongs to the second request until it is done.
  bool sent = false;  // the second request
  bool first_done = false;
  bool second_done = false;
  bool second_won = false;
  std::vector<std::byte> bytes;

  std::stop_source stop_first;
  std::stop_source stop_second;
};

RetryStore::RetryStore(std::unique_ptr<Store> inner, const Clock& clock, RetryOptions options)
    : inner_(std::move(inner)),
      clock_(clock),
      options_(options),
      backoff_(options.backoff, options.seed.value_or(random_seed())) {
  for (int i = 0; i < options_.hedges; ++i) {
    hedgers_.emplace_back("store-hedge", [this] { send_second_requests(); });
  }
}

RetryStore::~RetryStore() {
  stop();
  for (auto& thread : hedgers_) thread.join();
}

StoreCounters RetryStore::counters() const {
  const std::scoped_lock lock(mutex_);
  return counters_;
}

std::string RetryStore::problem() const {
  const std::scoped_lock lock(mutex_);
  return last_error_;
}

bool RetryStore::wait_until(Moment moment, uint64_t recoveries, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto left = moment - clock_.now();
  if (left > Duration{}) {
    changed_.wait_for(lock, stop, left, [&] { return recoveries_ != recoveries; });
  }
  return !stop.stop_requested();
}

Status RetryStore::persist(const std::function<Status()>& attempt, const std::stop_token& stop,
                           std::optional<Duration> limit) {
  const Moment began = clock_.now();
  Moment start;
  uint64_t recoveries = 0;
  {
    const std::scoped_lock lock(mutex_);
    start = backoff_.start_at(began);
    recoveries = recoveries_;
  }
  for (int tries = 1;; ++tries) {
    if (!wait_until(start, recoveries, stop)) return interrupted();
    const Moment started = clock_.now();
    Status status = attempt();
    if (stop.stop_requested() && !status.ok()) return interrupted();
    const Moment now = clock_.now();
    const std::scoped_lock lock(mutex_);
    if (status.ok()) {
      if (backoff_.succeeded(started)) {
        ++recoveries_;
        changed_.notify_all();
      }
      last_error_.clear();
      return status;
    }
    if (status.error().kind() != ErrorKind::kIo) return status;
    last_error_ = status.error().message();
    start = backoff_.failed(now, started, tries);
    recoveries = recoveries_;
    if (limit && start - began > *limit) {
      return Error(status.error())
          .context("gave up after {}", counted(static_cast<uint64_t>(tries), "attempt"));
    }
    ++counters_.retries;
  }
}

Result<std::vector<Object>> RetryStore::list(std::string_view address) {
  return list_stoppable(address, {});
}

Result<std::vector<Object>> RetryStore::list_stoppable(std::string_view address,
                                                       const std::stop_token& stop) {
  const EitherStop either(stop, stop_.get_token());
  const auto token = either.token();
  const auto make = [&](const std::function<Status()>& request) {
    return persist(request, token, options_.list_timeout);
  };
  return inner_->list_in_requests(address, make, token);
}

Status RetryStore::read(const Object& object, uint64_t offset, std::span<std::byte> into) {
  return read_stoppable(object, offset, into, {});
}

Status RetryStore::read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                                  const std::stop_token& stop) {
  const EitherStop either(stop, stop_.get_token());
  const auto token = either.token();
  MUSTER_RETURN_IF_ERROR(
      persist([&] { return read_once(object, offset, into, token); }, token, std::nullopt));
  const std::scoped_lock lock(mutex_);
  ++counters_.reads;
  counters_.bytes += into.size();
  return {};
}

Status RetryStore::read_once(const Object& object, uint64_t offset, std::span<std::byte> into,
                             const std::stop_token& stop) {
  if (options_.hedges == 0 || is_local(object.name)) {
    return inner_->read_stoppable(object, offset, into, stop);
  }
  const auto read = std::make_shared<HedgedRead>();
  read->object = object;
  read->offset = offset;
  read->length = into.size();
  const Moment started = clock_.now();
  std::list<std::shared_ptr<HedgedRead>>::iterator place;
  {
    const std::scoped_lock lock(mutex_);
    read->due = started + hedge_after(options_.hedge, times_, into.size());
    place = reads_.insert(reads_.end(), read);
    ++reads_begun_;
  }
  changed_.notify_all();
  Status status = [&] {
    const EitherStop either(stop, read->stop_first.get_token());
    return inner_->read_stoppable(object, offset, into, either.token());
  }();
  {
    const std::scoped_lock lock(mutex_);
    read->first_done = true;
    reads_.erase(place);
  }
  status = settle(*read, std::move(status), into, stop);
  if (status.ok()) {
    const std::scoped_lock lock(mutex_);
    times_.add(into.size(), clock_.now() - started);
  }
  return status;
}

Status RetryStore::settle(HedgedRead& read, Status first, std::span<std::byte> into,
                          const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool passes = !first.ok() && (first.error().kind() == ErrorKind::kIo || read.second_won);
  if (passes && read.sent && !stop.stop_requested()) {
    // The first request failed or was ended; the second one may still bring the bytes.
    changed_.wait(lock, stop, [&] { return read.second_done; });
    if (read.second_won) {
      std::memcpy(into.data(), read.bytes.data(), into.size());
      ++counters_.hedges_won;
      return {};
    }
  }
  lock.unlock();
  read.stop_second.request_stop();
  return first;
}

// The read whose second request is due, or null when the store ends.
std::shared_ptr<RetryStore::HedgedRead> RetryStore::next_due(std::unique_lock<std::mutex>& lock) {
  const auto stop = stop_.get_token();
  while (!stop.stop_requested()) {
    std::shared_ptr<HedgedRead> next;
    for (const auto& read : reads_) {
      if (!read->sent && (!next || read->due < next->due)) next = read;
    }
    const Moment now = clock_.now();
    if (next && next->due <= now) return next;
    // A new read may be due earlier.
    const auto another = [this, seen = reads_begun_] { return reads_begun_ != seen; };
    if (next) {
      changed_.wait_for(lock, stop, next->due - now, another);
    } else {
      changed_.wait(lock, stop, another);
    }
  }
  return nullptr;
}

void RetryStore::send_second_requests() {
  std::unique_lock lock(mutex_);
  while (const auto read = next_due(lock)) {
    read->sent = true;
    ++counters_.hedges;
    lock.unlock();
    read->bytes.resize(read->length);
    Status status;
    {
      const EitherStop either(stop_.get_token(), read->stop_second.get_token());
      status = inner_->read_stoppable(read->object, read->offset, read->bytes, either.token());
    }
    lock.lock();
    read->second_done = true;
    // If the first one has failed it waits for this; if it has succeeded nobody looks.
    read->second_won = status.ok();
    const bool end_first = read->second_won && !read->first_done;
    lock.unlock();
    changed_.notify_all();
    if (end_first) read->stop_first.request_stop();
    lock.lock();
  }
}

Result<std::optional<std::string>> RetryStore::version_if_holds(std::string_view address,
                                                                std::span<const std::byte> bytes,
                                                                const std::stop_token& stop) {
  const std::optional<std::string> none;
  // An object that was deleted or replaced meanwhile does not have these bytes.
  const auto is_gone = [](const Error& error) { return error.kind() == ErrorKind::kData; };
  auto objects = inner_->list_stoppable(address, stop);
  if (!objects.ok() && is_gone(objects.error())) return none;
  if (!objects.ok()) return std::move(objects).error();
  if (objects->size() != 1 || objects->at(0).size != bytes.size()) return none;
  std::vector<std::byte> there(bytes.size());
  auto read = inner_->read_stoppable(objects->at(0), 0, there, stop);
  if (!read.ok() && is_gone(read.error())) return none;
  if (!read.ok()) return std::move(read).error();
  if (!std::ranges::equal(there, bytes)) return none;
  return std::optional(objects->at(0).version);
}

Result<std::optional<std::string>> RetryStore::write(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition) {
  return write_stoppable(address, bytes, condition, {});
}

Result<std::optional<std::string>> RetryStore::write_stoppable(std::string_view address,
                                                               std::span<const std::byte> bytes,
                                                               const WriteCondition& condition,
                                                               const std::stop_token& stop) {
  const EitherStop either(stop, stop_.get_token());
  const auto token = either.token();
  std::optional<std::string> version;
  bool unclear = false;  // an earlier attempt may have written
  const auto attempt = [&]() -> Status {
    auto written = inner_->write_stoppable(address, bytes, condition, token);
    if (!written.ok()) {
      unclear = true;
      return std::move(written).error();
    }
    version = *std::move(written);
    if (version || !unclear) return {};
    MUSTER_TRY(version, version_if_holds(address, bytes, token));
    return {};
  };
  MUSTER_RETURN_IF_ERROR(persist(attempt, token, std::nullopt));
  return version;
}

Status RetryStore::remove(std::string_view address) { return remove_stoppable(address, {}); }

Status RetryStore::remove_stoppable(std::string_view address, const std::stop_token& stop) {
  const EitherStop either(stop, stop_.get_token());
  const auto token = either.token();
  return persist([&] { return inner_->remove_stoppable(address, token); }, token, std::nullopt);
}

}  // namespace muster::store
