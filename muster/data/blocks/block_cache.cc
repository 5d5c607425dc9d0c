#include "muster/data/blocks/block_cache.h"

#include <algorithm>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"

namespace muster::data {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

Moment now() { return std::chrono::steady_clock::now(); }

}  // namespace

const Result<std::unique_ptr<DecodedBlock>>& LoadedBlock::decoded(const BlockFormat& format,
                                                                  uint32_t count,
                                                                  const Schema& schema) {
  std::call_once(once_, [&] { decoded_ = format.decode(bytes(), count, schema); });
  return decoded_;
}

BlockCache::BlockCache(const BlockIndex& index, store::Store& store, DiskCache* disk,
                       const FetchOptions& options)
    : index_(index), store_(store), disk_(disk), options_(options) {
  MUSTER_CHECK(options.threads > 0 && options.tries > 0, "at least one thread and one try");
  threads_.reserve(static_cast<size_t>(options.threads));
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back("fetch", [this] { fetch_loop(); });
  }
}

BlockCache::~BlockCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.request_stop();
  work_.notify_all();
  ready_.notify_all();
  threads_.clear();  // joins
}

// ---- The plan

void BlockCache::follow(const ReadPlan& plan) {
  {
    const std::lock_guard lock(mutex_);
    // What the old plan holds goes only after the new one had the chance to hold it: it becomes
    // loose, and stays while there is room.
    stop_following();
    plan_ = plan;
    for (const int number : plan.lanes) {
      LaneAhead lane;
      lane.lane = number;
      lane.needed = plan.step;
      lanes_.push_back(std::move(lane));
    }
  }
  work_.notify_all();
}

void BlockCache::pause() {
  const std::lock_guard lock(mutex_);
  stop_following();
}

// With mutex_ held.
void BlockCache::stop_following() {
  ++generation_;
  for (const LaneAhead& lane : lanes_) {
    for (const BlockUse& use : lane.held) {
      Entry& entry = entries_.at(use.block);
      --entry.holders;
      if (entry.holders == 0 && !entry.loose) {
        entry.loose = true;
        loose_.push_back(use.block);
      }
    }
  }
  lanes_.clear();
  make_room();
}

void BlockCache::taken(uint64_t step, int number) {
  {
    const std::lock_guard lock(mutex_);
    const auto lane = std::ranges::find(lanes_, number, &LaneAhead::lane);
    if (lane == lanes_.end() || lane->needed > step) return;
    lane->needed = step + 1;
    const auto over =
        std::ranges::partition(lane->held, [&](const BlockUse& use) { return use.last >= step; });
    for (const BlockUse& use : over) release(use.block);
    lane->held.erase(over.begin(), over.end());
  }
  work_.notify_one();
}

// With mutex_ held. A use is over.
void BlockCache::release(uint32_t number) {
  Entry& entry = entries_.at(number);
  --entry.holders;
  drop_if_unused(number);
}

void BlockCache::drop_if_unused(uint32_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  if (entry.holders > 0 || entry.readers > 0 || entry.requests > 0 || entry.loose) return;
  bytes_ -= entry.bytes;
  entries_.erase(found);
}

// Drops loose blocks, the oldest first, while there are too many bytes.
void BlockCache::make_room() {
  for (size_t left = loose_.size(); left > 0 && bytes_ > options_.memory; --left) {
    const uint32_t number = loose_.front();
    loose_.pop_front();
    entries_.at(number).loose = false;
    drop_if_unused(number);
  }
}

// ---- Fetch threads

void BlockCache::fetch_loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (const auto number = claim()) {
      lock.unlock();
      work_.notify_one();  // there may be more
      auto bytes = fetch(*number);
      // In front of what the object has (BlockFormat::notes).
      if (bytes && bytes->ok()) (*bytes)->insert(0, index_.note(*number));
      lock.lock();
      finish(*number, std::move(bytes));
      continue;
    }
    if (plan_one(lock)) continue;
    // Now and then, because a request may become old enough for a second one.
    work_.wait_for(lock, kPoll * 2);
  }
}

// Computes the next use of a lane that has none, outside of the lock: tables may have to be made.
bool BlockCache::plan_one(std::unique_lock<std::mutex>& lock) {
  const auto lane = std::ranges::find_if(
      lanes_, [](const LaneAhead& it) { return !it.next && !it.planning && !it.ended; });
  if (lane == lanes_.end()) return false;
  const uint64_t generation = generation_;
  const auto index = lane - lanes_.begin();
  const ReadPlan plan = plan_;  // the schedule refers to its order
  const int number = lane->lane;
  auto schedule = std::move(lane->schedule);
  lane->planning = true;
  lock.unlock();
  if (schedule == nullptr) {
    schedule = make_schedule(*plan.order, index_, plan.batches, number, plan.step);
  }
  auto next = schedule->next();
  lock.lock();
  if (generation != generation_) return true;
  LaneAhead& same = lanes_[static_cast<size_t>(index)];
  same.schedule = std::move(schedule);
  same.planning = false;
  same.ended = !next.has_value();
  same.next = next;
  return true;
}

// The block to fetch now, begun. With mutex_ held.
std::optional<uint32_t> BlockCache::claim() {
  while (!demanded_.empty()) {
    const uint32_t number = demanded_.front();
    demanded_.pop_front();
    const auto found = entries_.find(number);
    if (found == entries_.end()) continue;
    found->second.demanded = false;
    if (found->second.state != State::kAbsent) continue;
    if (found->second.readers == 0 && found->second.holders == 0) {
      drop_if_unused(number);
      continue;
    }
    begin(number, found->second);
    return number;
  }
  if (const auto number = claim_again(now())) return number;
  return claim_ahead();
}

// A request that someone waits for and that is old.
std::optional<uint32_t> BlockCache::claim_again(Moment moment) {
  if (options_.second_request == Duration{}) return std::nullopt;
  for (auto& [number, entry] : entries_) {
    if (entry.state != State::kFetching || entry.readers == 0 || entry.requests != 1) continue;
    if (moment - entry.begun < options_.second_request) continue;
    ++entry.requests;
    ++counters_.second;
    return number;
  }
  return std::nullopt;
}

// The block that is due first, over all lanes.
std::optional<uint32_t> BlockCache::claim_ahead() {
  while (true) {
    LaneAhead* first = nullptr;
    // Lanes may be at different steps: what counts is how many steps are left until it is due.
    const auto steps_left = [](const LaneAhead& lane) {
      return lane.next->due > lane.needed ? lane.next->due - lane.needed : 0;
    };
    for (LaneAhead& lane : lanes_) {
      if (!lane.next) {
        if (!lane.ended) return std::nullopt;  // it may be the first
        continue;
      }
      if (first == nullptr || steps_left(lane) < steps_left(*first)) first = &lane;
    }
    if (first == nullptr) return std::nullopt;
    const BlockUse use = *first->next;
    const uint64_t length = index_.blocks[use.block].length;
    const auto found = entries_.find(use.block);
    const bool here = found != entries_.end() && found->second.bytes > 0;
    if (!here && bytes_ + length > options_.memory && steps_left(*first) > plan_.ahead) {
      // Not before something was taken.
      if (loose_.empty()) return std::nullopt;
      const uint64_t before = bytes_;
      const uint32_t oldest = loose_.front();
      loose_.pop_front();
      entries_.at(oldest).loose = false;
      drop_if_unused(oldest);
      if (bytes_ == before && loose_.empty()) return std::nullopt;
      continue;
    }
    first->next.reset();
    if (use.last < first->needed) return std::nullopt;  // over already: plan the next one
    Entry& entry = entries_[use.block];
    ++entry.holders;
    first->held.push_back(use);
    if (entry.loose) {
      entry.loose = false;
      std::erase(loose_, use.block);
    }
    if (entry.state != State::kAbsent || entry.demanded) return std::nullopt;
    begin(use.block, entry);
    return use.block;
  }
}

void BlockCache::begin(uint32_t number, Entry& entry) {
  entry.state = State::kFetching;
  entry.error.reset();
  entry.begun = now();
  ++entry.requests;
  entry.bytes = std::max<uint64_t>(1, index_.blocks[number].length);
  bytes_ += entry.bytes;
  make_room();
  counters_.most_bytes = std::max(counters_.most_bytes, bytes_);
}

// With mutex_ held.
void BlockCache::finish(uint32_t number, std::optional<Result<std::string>> bytes) {
  Entry& entry = entries_.at(number);  // a request under way keeps it
  --entry.requests;
  if (entry.state == State::kFetching) {
    if (bytes && bytes->ok()) {
      entry.state = State::kReady;
      entry.block = std::make_shared<LoadedBlock>(**std::move(bytes));
    } else if (entry.requests == 0) {  // else the other one may still succeed
      bytes_ -= entry.bytes;
      entry.bytes = 0;
      if (bytes) {
        entry.state = State::kFailed;
        entry.error = std::move(*bytes).error();
      } else {  // given up because nobody wanted it; somebody may again by now
        entry.state = State::kAbsent;
        if (entry.readers > 0 || entry.holders > 0) demand(number, entry);
      }
    }
  }
  drop_if_unused(number);
  ready_.notify_all();
}

// Without the lock. Nothing: nobody wanted it any more.
std::optional<Result<std::string>> BlockCache::fetch(uint32_t number) {
  const Block& block = index_.blocks[number];
  const Hash128 key = disk_ != nullptr ? DiskCache::key_of(index_, number) : Hash128{};
  if (disk_ != nullptr) {
    if (auto bytes = disk_->read(key, block.length)) {
      const std::lock_guard lock(mutex_);
      ++counters_.from_disk;
      return *std::move(bytes);
    }
  }
  const Moment begun = now();
  Duration pause = options_.first_pause;
  std::string bytes(block.length, '\0');
  for (int tries = 1;;) {
    auto status =
        store_.read_stoppable(index_.objects[block.object], block.offset,
                              std::as_writable_bytes(std::span(bytes)), stop_.get_token());
    if (status.ok()) {
      if (block.hash == Hash128{} || hash128(std::as_bytes(std::span(bytes))) == block.hash) break;
      {
        const std::lock_guard lock(mutex_);
        ++counters_.damaged;
      }
      if (tries++ == options_.tries) {
        return Error(ErrorKind::kData,
                     "{} is damaged: its bytes do not have the hash that the index has for them, "
                     "after {} reads; restore the object, or index the data again",
                     index_.describe(number), options_.tries);
      }
      continue;
    }
    if (status.error().kind() != ErrorKind::kIo) {
      return std::move(status).error().context("{}", index_.describe(number));
    }
    if (now() - begun >= options_.give_up) {
      return std::move(status).error().context("{} could not be read for {}",
                                               index_.describe(number),
                                               human_seconds(seconds(now() - begun)));
    }
    {
      const std::lock_guard lock(mutex_);
      ++counters_.failed;
      last_problem_ = status.error().message();
    }
    if (!pause_for(number, pause)) return std::nullopt;
    pause = std::min(pause * 2, options_.longest_pause);
  }
  if (disk_ != nullptr) disk_->write(key, bytes);
  const std::lock_guard lock(mutex_);
  last_problem_.clear();
  ++counters_.fetched;
  counters_.fetched_bytes += block.length;
  return bytes;
}

// False: nobody wants the block any more, or it came meanwhile.
bool BlockCache::pause_for(uint32_t number, Duration pause) {
  const Moment end = now() + pause;
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopping_) return false;
    const Entry& entry = entries_.at(number);
    if (entry.state != State::kFetching || (entry.holders == 0 && entry.readers == 0)) return false;
    if (now() >= end) return true;
    ready_.wait_for(lock, std::min<Duration>(kPoll, end - now()));
  }
}

// ---- Readers

BlockCache::Reading::Reading(BlockCache& cache, std::vector<uint32_t> blocks)
    : cache_(cache), blocks_(std::move(blocks)) {
  bool missing = false;
  {
    const std::lock_guard lock(cache_.mutex_);
    for (const uint32_t number : blocks_) {
      Entry& entry = cache_.entries_[number];
      ++entry.readers;
      if (entry.state == State::kReady) continue;
      if (entry.readers == 1) entry.wanted = now();
      ++cache_.counters_.waited;
      missing = true;
      // One that failed for a reason that may have passed gets another chance.
      const bool again = entry.state == State::kFailed && entry.error->kind() == ErrorKind::kIo;
      if (again) entry.state = State::kAbsent;
      if (entry.state == State::kAbsent) cache_.demand(number, entry);
    }
  }
  if (missing) cache_.work_.notify_all();
}

// With mutex_ held.
void BlockCache::demand(uint32_t number, Entry& entry) {
  if (entry.demanded) return;
  entry.demanded = true;
  demanded_.push_back(number);
}

BlockCache::Reading::~Reading() {
  const std::lock_guard lock(cache_.mutex_);
  for (const uint32_t number : blocks_) {
    Entry& entry = cache_.entries_.at(number);
    --entry.readers;
    if (entry.readers == 0 && entry.holders == 0 && !entry.loose && entry.state == State::kReady) {
      entry.loose = true;  // the next batch may read it too
      cache_.loose_.push_back(number);
    }
    cache_.drop_if_unused(number);
  }
  cache_.make_room();
}

Result<std::shared_ptr<LoadedBlock>> BlockCache::Reading::get(size_t i,
                                                              const KeepWaiting& keep_waiting) {
  const uint32_t number = blocks_[i];
  std::unique_lock lock(cache_.mutex_);
  Entry& entry = cache_.entries_.at(number);  // stays where it is while it has readers
  Moment asked = now();
  while (entry.state != State::kReady) {
    if (entry.state == State::kFailed) return *entry.error;
    if (cache_.stopping_) return Error(ErrorKind::kInterrupted, "the data is being closed");
    cache_.ready_.wait_for(lock, kPoll);
    if (!keep_waiting || now() - asked < kPoll) continue;
    lock.unlock();
    const bool wait_on = keep_waiting();
    asked = now();
    lock.lock();
    if (!wait_on && entry.state != State::kReady) {
      return Error(ErrorKind::kInterrupted, "ended while waiting for {}",
                   cache_.index_.describe(number));
    }
  }
  return entry.block;
}

void BlockCache::Reading::note_decoded(size_t i, uint64_t memory) {
  if (memory == 0) return;
  const std::lock_guard lock(cache_.mutex_);
  Entry& entry = cache_.entries_.at(blocks_[i]);
  if (std::exchange(entry.decoded, true)) return;
  entry.bytes += memory;
  cache_.bytes_ += memory;
  cache_.counters_.most_bytes = std::max(cache_.counters_.most_bytes, cache_.bytes_);
  cache_.make_room();
}

std::string BlockCache::waiting() const {
  const std::lock_guard lock(mutex_);
  const Moment moment = now();
  uint64_t requests = 0;
  Moment oldest = moment;
  for (const auto& [number, entry] : entries_) {
    if (entry.readers == 0 || entry.state == State::kReady || entry.state == State::kFailed) {
      continue;
    }
    ++requests;
    oldest = std::min(oldest, entry.wanted);
  }
  if (requests == 0) return "";
  const std::string problem = last_problem_.empty() ? store_.problem() : last_problem_;
  return fmt::format("waiting for data: {}, oldest {:.1f} s{}{}", counted(requests, "request"),
                     seconds(moment - oldest), problem.empty() ? "" : "; last error: ", problem);
}

BlockCache::Counters BlockCache::counters() const {
  const std::lock_guard lock(mutex_);
  Counters result = counters_;
  result.blocks = entries_.size();
  result.bytes = bytes_;
  return result;
}

}  // namespace muster::data
