#include "muster/train/step/sum_exchange.h"

namespace muster::train {

SumExchange::~SumExchange() {
  stop_ = true;
  ++begun_;
  begun_.notify_all();
}

void SumExchange::begin(GradientSum& sum, comm::Group& group, const comm::OpOptions& options) {
  sum_ = &sum;
  group_ = &group;
  options_ = options;
  status_ = {};
  failed_.store(false, std::memory_order_relaxed);
  const bool alone = group.size() == 1 && few_ == nullptr;
  if (alone || sum_->mode() == GradientSum::Mode::kDry) {
    group_ = nullptr;
    return;
  }
  if (!thread_.running()) thread_ = Thread("sum", [this] { serve(); });
  begun_.fetch_add(1, std::memory_order_release);
  begun_.notify_all();
}

Status SumExchange::finish() {
  if (group_ == nullptr) return {};
  const uint32_t round = begun_.load(std::memory_order_relaxed);
  for (uint32_t ended = ended_.load(std::memory_order_acquire); ended != round;
       ended = ended_.load(std::memory_order_acquire)) {
    ended_.wait(ended, std::memory_order_acquire);
  }
  group_ = nullptr;
  return std::move(status_);
}

void SumExchange::serve() {
  for (uint32_t round = 0;;) {
    begun_.wait(round, std::memory_order_acquire);
    ++round;  // finish() waits for each round, so at most one has begun since
    if (stop_) return;
    status_ = exchange();
    ended_.store(round, std::memory_order_release);
    ended_.notify_all();
  }
}

Status SumExchange::exchange(size_t bucket) {
  if (sum_->mode() == GradientSum::Mode::kNative) {
    return group_->allreduce_sum(sum_->float_bucket(bucket), options_);
  }
  if (few_ != nullptr) return few_->exchange(bucket, *group_, options_);
  comm::OpOptions options = options_;
  options.pack = options_.pack || sum_->is_small(bucket);
  return group_->allreduce_sum(sum_->int_bucket(bucket), options);
}

Status SumExchange::exchange() {
  for (const size_t bucket : sum_->exchange_order()) {
    if (!sum_->wait_complete(bucket)) return {};  // the lanes gave up, and say why themselves
    auto status = exchange(bucket);
    if (!status.ok()) {
      failed_.store(true, std::memory_order_relaxed);
      return status;
    }
    if (vitals_ != nullptr) vitals_->note_progress();
  }
  return {};
}

}  // namespace muster::train
