#include "muster/data/loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "muster/base/check.h"

namespace muster::data {

namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

// The samples at these positions of the stream, as the batch of this lane in this step.
Status fill_slice(const Dataset& dataset, const SampleOrder& order, const LoaderPlan& plan,
                  const Slice& slice, const Replacements* replacements, uint64_t step, int lane,
                  const KeepWaiting& keep_waiting, Batch& batch) {
  const Schema& schema = dataset.schema();
  batch.reserve(schema, slice.count);
  batch.step = step;
  batch.lane = lane;
  batch.count = slice.count;
  batch.samples.resize(slice.count);
  batch.replaced = 0;
  batch.damage.reset();
  if (slice.count == 0) return {};

  order.samples(slice, batch.samples);
  if (replacements != nullptr) batch.replaced = replacements->apply(batch.samples);
  MUSTER_RETURN_IF_ERROR(dataset.read_or_find_damage(
      batch.samples, batch.inputs.data(), batch.targets.data(), keep_waiting, batch.damage));
  if (!plan.augment.active()) return {};
  const size_t input_bytes = schema.input_bytes();
  uint64_t number = slice.first / order.size();
  uint64_t left = order.size() - slice.first % order.size();  // of this pass
  for (uint64_t i = 0; i < slice.count; ++i, --left) {
    if (left == 0) {
      ++number;
      left = order.size();
    }
    std::byte* input = batch.inputs.data() + i * input_bytes;
    plan.augment.apply(plan.seed, number, batch.samples[i], reinterpret_cast<float*>(input));
  }
  return {};
}

std::shared_ptr<const SampleOrder> order_of(const LoaderPlan& plan, const Dataset& dataset) {
  if (plan.order == nullptr) return std::make_shared<FullOrder>(plan.seed, dataset.size());
  MUSTER_CHECK(plan.order->size() == dataset.size(), "the order is of the samples of the data");
  return plan.order;
}

}  // namespace

Status fill_batch(const Dataset& dataset, const SampleOrder& order, const LoaderPlan& plan,
                  uint64_t step, int lane, Batch& batch) {
  return fill_slice(dataset, order, plan,
                    lane_slice(plan.batches, step, static_cast<uint64_t>(lane)), nullptr, step,
                    lane, plan.keep_waiting, batch);
}

Loader::Loader(const Dataset& dataset, const LoaderPlan& plan, const std::vector<int>& lanes,
               uint64_t first_step)
    : dataset_(dataset),
      plan_(plan),
      order_(order_of(plan_, dataset)),
      fetcher_(dataset.fetcher()),
      pool_(std::make_shared<BatchPool>(dataset.schema(), plan_.batches.lane_capacity(),
                                        *plan_.memory)),
      reads_ahead_(plan_.threads > 0 && plan_.ahead > 0),
      batches_(plan_.batches) {
  reset(first_step, lanes);
  if (!reads_ahead_) return;
  threads_.reserve(static_cast<size_t>(plan_.threads));
  for (int i = 0; i < plan_.threads; ++i) threads_.emplace_back("prefetch", [this] { prefetch(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  threads_.clear();  // joins
  if (fetcher_ != nullptr) fetcher_->pause();
}

// With mutex_ held, or before there are threads.
void Loader::reset(uint64_t step, const std::vector<int>& lanes) {
  ++generation_;
  lane_numbers_ = lanes;
  for (Lane& lane : lanes_) {
    for (ReadAhead& buffer : lane.buffers) {
      if (buffer.batch) pool_->give_back(std::move(buffer.batch));
    }
  }
  lanes_.clear();
  index_of_.assign(plan_.batches.lanes, -1);
  turn_ = 0;
  unclaimed_ = 0;
  if (fetcher_ != nullptr) {
    fetcher_->follow({.order = order_,
                      .batches = batches_,
                      .lanes = lanes,
                      .step = step,
                      .ahead = reads_ahead_ ? plan_.ahead : 0,
                      .replacements = replacements_});
  }
  if (!reads_ahead_) return;
  for (const int number : lanes) {
    MUSTER_CHECK(number >= 0 && static_cast<uint64_t>(number) < plan_.batches.lanes &&
                     index_of_[static_cast<size_t>(number)] < 0,
                 "lanes are different and of this job");
    index_of_[static_cast<size_t>(number)] = static_cast<int>(lanes_.size());
    Lane lane{.lane = number, .needed = step, .next = step, .buffers = {}};
    lane.buffers.resize(plan_.ahead);
    unclaimed_ += claimable(lane);
    lanes_.push_back(std::move(lane));
  }
}

void Loader::restart(uint64_t step, const std::vector<int>& lanes) {
  BatchPlan batches;
  {
    const std::lock_guard lock(mutex_);
    batches = batches_;
  }
  restart(batches, step, lanes);
}

void Loader::restart(const BatchPlan& batches, const std::vector<int>& lanes) {
  restart(batches, batches.first_step, lanes);
}

void Loader::restart(const BatchPlan& batches, uint64_t step, const std::vector<int>& lanes) {
  MUSTER_CHECK(batches.batch == plan_.batches.batch && batches.lanes == plan_.batches.lanes,
               "a job keeps its batch size and lanes");
  {
    const std::lock_guard lock(mutex_);
    batches_ = batches;
    reset(step, lanes);
  }
  ready_.notify_all();
  work_.notify_all();
}

Status Loader::replace(std::span<const uint64_t> damaged, uint64_t step) {
  {
    const std::lock_guard lock(mutex_);
    if (replacements_ == nullptr ? damaged.empty()
                                 : std::ranges::equal(damaged, replacements_->damaged())) {
      return {};
    }
  }
  std::shared_ptr<const Replacements> replacements;
  if (!damaged.empty()) {
    const auto index = dataset_.blocks();
    if (index == nullptr) {
      return Error(ErrorKind::kCheckpoint,
                   "the training state says that blocks of data.train are damaged, but it is not "
                   "read by blocks: the data has changed");
    }
    MUSTER_TRY(replacements, Replacements::make(*index, plan_.seed, damaged));
  }
  {
    const std::lock_guard lock(mutex_);
    replacements_ = std::move(replacements);
    const std::vector<int> lanes = lane_numbers_;
    reset(step, lanes);
  }
  ready_.notify_all();
  work_.notify_all();
  return {};
}

uint64_t Loader::steps() const {
  const std::lock_guard lock(mutex_);
  return batches_.steps();
}

uint64_t Loader::claimable(const Lane& lane) const {
  const uint64_t end = batches_.steps();
  const uint64_t from = std::max(lane.needed, lane.next);
  const uint64_t to =
      lane.needed >= end || end - lane.needed < plan_.ahead ? end : lane.needed + plan_.ahead;
  return to > from ? to - from : 0;
}

void Loader::prefetch() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++sleeping_;
    work_.wait(lock, [&] { return stopping_ || unclaimed_ > 0; });
    --sleeping_;
    if (stopping_) return;
    const Claim mine = claim();
    // Takers wake one thread; it wakes the next if there is more than it can begin itself.
    const bool more = unclaimed_ > 0 && sleeping_ > 0;
    lock.unlock();
    if (more) work_.notify_one();
    auto batch = pool_->acquire();
    // Asked only while data that is streamed is not there: a restart drops this batch.
    const auto still_wanted = [&] {
      const std::lock_guard guard(mutex_);
      return !stopping_ && generation_ == mine.generation;
    };
    const bool filled = fill_slice(dataset_, *order_, plan_, mine.slice, mine.replacements.get(),
                                   mine.step, mine.lane, still_wanted, *batch)
                            .ok();
    if (filled && plan_.filled) plan_.filled(*batch);
    lock.lock();
    deliver(mine, std::move(batch), filled);
  }
}

// The oldest step that is to be read ahead, lanes in turn. There must be one.
Loader::Claim Loader::claim() {
  while (claimable(lanes_[turn_]) == 0) turn_ = (turn_ + 1) % lanes_.size();
  const size_t index = turn_;
  turn_ = (turn_ + 1) % lanes_.size();
  Lane& lane = lanes_[index];
  const uint64_t step = std::max(lane.needed, lane.next);
  lane.next = step + 1;
  --unclaimed_;
  // Whatever the buffer holds is of a step that nobody will ask for as the next one any more.
  ReadAhead& buffer = lane.buffers[step % plan_.ahead];
  if (buffer.batch) pool_->give_back(std::move(buffer.batch));
  buffer.state = State::kFilling;
  buffer.step = step;
  return {index,         lane.lane,
          step,          lane_slice(batches_, step, static_cast<uint64_t>(lane.lane)),
          replacements_, generation_};
}

// With mutex_ held.
void Loader::deliver(const Claim& claim, std::unique_ptr<Batch> batch, bool filled) {
  if (claim.generation == generation_) {
    ReadAhead& buffer = lanes_[claim.lane_index].buffers[claim.step % plan_.ahead];
    if (buffer.state == State::kFilling && buffer.step == claim.step) {
      buffer.state = filled ? State::kReady : State::kEmpty;  // the taker gets the error itself
      if (filled) buffer.batch = std::move(batch);
    }
  }
  if (batch) pool_->give_back(std::move(batch));  // overtaken: nobody wants it any more
  ready_.notify_all();                            // no system call unless somebody waits
}

// The batch, if it was read ahead or is just being; else nothing, and the caller fills it.
Result<std::unique_ptr<Batch>> Loader::take_prefetched(std::unique_lock<std::mutex>& lock,
                                                       uint64_t step, int number) {
  const int index = index_of_[static_cast<size_t>(number)];
  if (index < 0) return std::unique_ptr<Batch>();
  const uint64_t generation = generation_;
  bool waited = false;
  const auto buffer_of = [&]() -> ReadAhead& {
    return lanes_[static_cast<size_t>(index)].buffers[step % plan_.ahead];
  };
  while (buffer_of().state == State::kFilling && buffer_of().step == step) {
    waited = true;
    if (fetcher_ == nullptr || !plan_.keep_waiting) {
      ready_.wait(lock);
    } else if (ready_.wait_for(lock, kPoll) == std::cv_status::timeout) {
      lock.unlock();
      const bool wait_on = plan_.keep_waiting();
      lock.lock();
      if (!wait_on) {
        return Error(ErrorKind::kInterrupted, "step {}, lane {}: ended while waiting for data",
                     step, number);
      }
    }
    if (generation != generation_) return std::unique_ptr<Batch>();
  }
  std::unique_ptr<Batch> batch;
  ReadAhead& buffer = buffer_of();
  if (buffer.state == State::kReady && buffer.step == step) {
    batch = std::move(buffer.batch);
    buffer.state = State::kEmpty;
    ++(waited ? counters_.waited : counters_.ready);
  }
  // Only now may the buffer be claimed for a later step.
  Lane& lane = lanes_[static_cast<size_t>(index)];
  unclaimed_ -= claimable(lane);
  lane.needed = std::max(lane.needed, step + 1);
  unclaimed_ += claimable(lane);
  return batch;
}

Result<BorrowedBatch> Loader::take(uint64_t step, int lane) {
  MUSTER_CHECK(lane >= 0 && static_cast<uint64_t>(lane) < plan_.batches.lanes,
               "the lane is one of the job's");
  std::unique_ptr<Batch> batch;
  Slice slice;
  std::shared_ptr<const Replacements> replacements;
  bool wake = false;
  {
    std::unique_lock lock(mutex_);
    slice = lane_slice(batches_, step, static_cast<uint64_t>(lane));
    replacements = replacements_;
    MUSTER_TRY(batch, take_prefetched(lock, step, lane));
    if (!batch) ++counters_.by_hand;
    // A sleeping thread is woken for a step's worth of work, not for every lane: lanes keep the
    // cores busy, and each wake-up takes one away from them.
    const uint64_t lanes = lanes_.size();
    const uint64_t work = plan_.together > 0 ? std::min(plan_.together, lanes) : lanes;
    wake = sleeping_ > 0 && unclaimed_ > 0 && unclaimed_ >= work;
  }
  if (wake) work_.notify_one();
  if (!batch) {
    batch = pool_->acquire();
    auto filled = fill_slice(dataset_, *order_, plan_, slice, replacements.get(), step, lane,
                             plan_.keep_waiting, *batch);
    if (!filled.ok() && !(plan_.finds_damage && batch->damage)) {
      pool_->give_back(std::move(batch));
      return std::move(filled).error();
    }
    if (batch->damage) {
      batch->count = 0;
      batch->samples.clear();
    }
  }
  if (fetcher_ != nullptr) fetcher_->taken(step, lane);
  return BorrowedBatch(pool_, std::move(batch));
}

std::string Loader::waiting() const { return fetcher_ != nullptr ? fetcher_->waiting() : ""; }

Loader::Counters Loader::counters() const {
  Counters result;
  {
    const std::lock_guard lock(mutex_);
    result = counters_;
  }
  result.buffers = pool_->made();
  return result;
}

}  // namespace muster::data
