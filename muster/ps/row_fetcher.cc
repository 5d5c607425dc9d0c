#include "muster/ps/row_fetcher.h"

#include <utility>

namespace muster::ps {
namespace {

// A disk is slow with one request at a time.
constexpr size_t kThreads = 4;

}  // namespace

RowFetcher::RowFetcher(ColdRows& rows, std::function<void()> wake)
    : rows_(rows), wake_(std::move(wake)) {
  for (size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back("fetch-" + std::to_string(i), [this] { serve(); });
  }
}

RowFetcher::~RowFetcher() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

uint64_t RowFetcher::request(ColdPart part, std::span<const uint64_t> keys) {
  FetchedRows request;
  request.number = ++last_;
  request.part = part;
  request.keys.assign(keys.begin(), keys.end());
  under_way_.insert(last_);
  {
    const std::lock_guard lock(mutex_);
    requested_.push_back(std::move(request));
  }
  changed_.notify_one();
  return last_;
}

std::vector<FetchedRows> RowFetcher::take() {
  std::vector<FetchedRows> done;
  if (under_way_.empty()) return done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (const auto& one : done) under_way_.erase(one.number);
  return done;
}

void RowFetcher::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !requested_.empty(); });
    if (closed_) return;
    FetchedRows next = std::move(requested_.front());
    requested_.pop_front();
    lock.unlock();
    next.status = rows_.find(next.part, next.keys, [&](size_t place, std::string_view bytes) {
      next.found.push_back(place);
      next.rows.emplace_back(bytes);
    });
    lock.lock();
    done_.push_back(std::move(next));
    if (done_.size() > 1) continue;  // the owner was woken, and has not looked yet
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace muster::ps
