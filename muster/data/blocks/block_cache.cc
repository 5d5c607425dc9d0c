#include "muster/data/blocks/block_cache.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/text.h"

namespace muster::data {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);
// Of the memory that is given, free pieces that wait for the next block hold one part in so many.
constexpr uint64_t kFreeShare = 12;

Moment now() { return std::chrono::steady_clock::now(); }

}  // namespace

const Result<std::unique_ptr<DecodedBlock>>& LoadedBlock::decoded(const BlockFormat& format,
                                                                  uint32_t count,
                                                                  const Schema& schema) {
  std::call_once(once_, [&] {
    decoded_ = format.decode(bytes_->span(), count, schema);
    if (decoded_.ok() && !(*decoded_)->needs_bytes()) bytes_.reset();
  });
  return decoded_;
}

BlockCache::BlockCache(const BlockIndex& index, store::Store& store, DiskCache* disk,
                       const FetchOptions& options)
    : index_(index),
      store_(store),
      disk_(disk),
      options_(options),
      memory_(BlockMemory::make(options.memory / kFreeShare)) {
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
  for (LaneAhead& lane : lanes_) {
    while (!lane.held.empty()) release(lane);
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
    while (!lane->held.empty() && lane->held.top().last < step) release(*lane);
    make_room();
  }
  work_.notify_one();
}

// With mutex_ held. The use that ends first is over. Its block stays while there is room: a later
// pass reads it again.
void BlockCache::release(LaneAhead& lane) {
  const uint32_t number = lane.held.top().block;
  lane.held.pop();
  held_bytes_ -= index_.blocks[number].length;
  Entry& entry = entries_.at(number);
  --entry.holders;
  if (entry.holders > 0 || entry.loose) return;
  if (entry.state == State::kReady || entry.state == State::kFetching) {
    entry.loose = true;
    loose_.push_back(number);
  } else {
    drop_if_unused(number);
  }
}

void BlockCache::drop_if_unused(uint32_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const Entry& entry = found->second;
  if (entry.holders > 0 || entry.readers > 0 || entry.state == State::kFetching || entry.loose ||
      entry.writing) {
    return;
  }
  bytes_ -= entry.bytes;
  if (!entry.decoded) undecoded_ -= entry.bytes;
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
      Fetched fetched = fetch(*number);
      lock.lock();
      const bool keep = disk_ != nullptr && fetched.bytes.ok() && !fetched.from_disk;
      entries_.at(*number).writing = keep;
      finish(*number, std::move(fetched.bytes), fetched.damaged);
      if (keep) keep_on_disk(*number, lock);
      continue;
    }
    if (plan_one(lock)) continue;
    // Now and then, because readers may have made room.
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
    schedule =
        make_schedule(*plan.order, index_, plan.batches, number, plan.step, plan.replacements);
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
  return claim_ahead();
}

// Whether looking further ahead than this can wait. A pass is enough, and so is twice what fits in
// memory: without an end, data that fits would be planned to the end of the job at once.
bool BlockCache::is_far(uint64_t steps_left) const {
  if (steps_left <= plan_.ahead) return false;
  return steps_left > index_.samples() / plan_.batches.batch || held_bytes_ / 2 > options_.memory;
}

// Whether a block of this length fits in the memory, once it and all others are decoded. Decoding
// that takes less memory than the stored bytes counts for nothing: a block holds these first.
bool BlockCache::fits(uint64_t length) const {
  uint64_t growth = 0;
  if (after_decoding_ > before_decoding_) {
    growth = static_cast<uint64_t>(static_cast<double>(undecoded_ + length) *
                                   static_cast<double>(after_decoding_ - before_decoding_) /
                                   static_cast<double>(before_decoding_));
  }
  return bytes_ + length + growth <= options_.memory;
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
    if (first == nullptr || is_far(steps_left(*first))) return std::nullopt;
    const BlockUse use = *first->next;
    const uint64_t length = index_.blocks[use.block].length;
    const auto found = entries_.find(use.block);
    const bool here = found != entries_.end() && found->second.bytes > 0;
    if (!here && !fits(length) && steps_left(*first) > plan_.ahead) {
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
    first->held.push(use);
    held_bytes_ += length;
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
  entry.decoded = false;
  entry.bytes = std::max<uint64_t>(1, index_.blocks[number].length);
  bytes_ += entry.bytes;
  undecoded_ += entry.bytes;
  make_room();
  counters_.most_bytes = std::max(counters_.most_bytes, bytes_);
}

// With mutex_ held.
void BlockCache::finish(uint32_t number, Result<BlockBytes> bytes, bool damaged) {
  Entry& entry = entries_.at(number);  // it stays while it is fetched
  if (bytes.ok()) {
    entry.state = State::kReady;
    entry.block = std::make_shared<LoadedBlock>(*std::move(bytes));
  } else {
    entry.state = State::kFailed;
    entry.error = std::move(bytes).error();
    entry.damaged = damaged;
    bytes_ -= entry.bytes;
    undecoded_ -= entry.bytes;
    entry.bytes = 0;
  }
  wanted_.erase(number);
  drop_if_unused(number);
  ready_.notify_all();
}

// With mutex_ held since finish(), so that no reader has the block yet; it is released meanwhile.
void BlockCache::keep_on_disk(uint32_t number, std::unique_lock<std::mutex>& lock) {
  auto all = entries_.at(number).block->bytes();
  lock.unlock();
  const auto bytes = all->span().subspan(index_.note(number).size());
  disk_->write(DiskCache::key_of(index_, number),
               {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  all.reset();
  lock.lock();
  Entry& entry = entries_.at(number);
  entry.writing = false;
  bytes_ -= entry.written;
  entry.bytes -= std::exchange(entry.written, 0);
  drop_if_unused(number);
}

Result<BlockBytes> BlockCache::memory_for(uint32_t number) {
  const uint64_t bytes = index_.note(number).size() + index_.blocks[number].length;
  try {
    return memory_->take(bytes);
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kMachine,
                 "{}: there is no memory for its {} bytes; set data.memory lower, or give the "
                 "process more",
                 index_.describe(number), with_commas(bytes));
  }
}

// Without the lock.
BlockCache::Fetched BlockCache::fetch(uint32_t number) {
  const Block& block = index_.blocks[number];
  // In front of what the object has (BlockFormat::notes).
  const std::string_view note = index_.note(number);
  auto memory = memory_for(number);
  if (!memory.ok()) return {.bytes = std::move(memory).error()};
  BlockBytes all = *std::move(memory);
  std::ranges::copy(std::as_bytes(std::span(note)), all.span().begin());
  const std::span<std::byte> bytes = all.span().subspan(note.size());
  if (disk_ != nullptr) {
    if (const auto kept = disk_->read(DiskCache::key_of(index_, number), block.length)) {
      std::ranges::copy(std::as_bytes(std::span(*kept)), bytes.begin());
      const std::lock_guard lock(mutex_);
      ++counters_.from_disk;
      return {.bytes = std::move(all), .from_disk = true};
    }
  }
  bool damaged = false;
  auto status = fetch_from_store(number, bytes, damaged);
  if (!status.ok()) return {.bytes = std::move(status).error(), .damaged = damaged};
  const std::lock_guard lock(mutex_);
  ++counters_.fetched;
  counters_.fetched_bytes += block.length;
  return {.bytes = std::move(all)};
}

// Without the lock. `damaged`: set if the error is that the bytes do not have their hash.
Status BlockCache::fetch_from_store(uint32_t number, std::span<std::byte> bytes, bool& damaged) {
  const Block& block = index_.blocks[number];
  for (int tries = 1;; ++tries) {
    auto status =
        store_.read_stoppable(index_.objects[block.object], block.offset, bytes, stop_.get_token());
    if (!status.ok()) return std::move(status).error().context("{}", index_.describe(number));
    if (block.hash == Hash128{} || hash128(bytes) == block.hash) return {};
    {
      const std::lock_guard lock(mutex_);
      ++counters_.damaged;
    }
    if (tries == options_.tries) {
      damaged = true;
      return Error(ErrorKind::kData,
                   "{} is damaged: its bytes do not have the hash that the index has for them, "
                   "after {} reads; restore the object, or index the data again",
                   index_.describe(number), options_.tries);
    }
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
      if (entry.state != State::kFailed) cache_.wanted_.insert(number);
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
    if (entry.readers == 0) cache_.wanted_.erase(number);
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

bool BlockCache::Reading::is_damaged(size_t i) const {
  const std::lock_guard lock(cache_.mutex_);
  const Entry& entry = cache_.entries_.at(blocks_[i]);
  return entry.state == State::kFailed && entry.damaged;
}

void BlockCache::Reading::note_decoded(size_t i, const DecodedBlock& decoded) {
  const uint64_t memory = decoded.memory();
  const std::lock_guard lock(cache_.mutex_);
  Entry& entry = cache_.entries_.at(blocks_[i]);
  const uint64_t before = entry.bytes;
  const uint64_t after = std::max<uint64_t>(1, memory + (decoded.needs_bytes() ? before : 0));
  entry.decoded = true;
  entry.written = entry.writing && !decoded.needs_bytes() ? before : 0;
  entry.bytes = after + entry.written;
  // Both were there while it was decoded.
  cache_.counters_.most_bytes = std::max(cache_.counters_.most_bytes, cache_.bytes_ + memory);
  cache_.bytes_ = cache_.bytes_ - before + entry.bytes;
  cache_.undecoded_ -= before;
  cache_.before_decoding_ += before;
  cache_.after_decoding_ += after;
  cache_.make_room();
}

std::string BlockCache::waiting() const {
  const std::lock_guard lock(mutex_);
  const Moment moment = now();
  if (wanted_.empty()) return "";
  Moment oldest = moment;
  for (const uint32_t number : wanted_) oldest = std::min(oldest, entries_.at(number).wanted);
  const std::string problem = store_.problem();
  return fmt::format("waiting for data: {}, oldest {:.1f} s{}{}",
                     counted(wanted_.size(), "request"), seconds(moment - oldest),
                     problem.empty() ? "" : "; last error: ", problem);
}

BlockCache::Counters BlockCache::counters() const {
  const std::lock_guard lock(mutex_);
  Counters result = counters_;
  result.blocks = entries_.size();
  result.bytes = bytes_;
  for (const LaneAhead& lane : lanes_) result.uses += lane.held.size();
  return result;
}

}  // namespace muster::data
