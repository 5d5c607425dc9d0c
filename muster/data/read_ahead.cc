#include "muster/data/read_ahead.h"

#include <memory>
#include <numeric>
#include <span>

#include "muster/base/check.h"
#include "muster/data/fetcher.h"
#include "muster/data/sample_order.h"

namespace muster::data {
namespace {

// As the samples lie.
class OwnOrder final : public SampleOrder {
 public:
  explicit OwnOrder(uint64_t size) : size_(size) {}
  uint64_t size() const override { return size_; }
  void samples(const Slice& positions, std::span<uint64_t> into) const override {
    MUSTER_CHECK(positions.first + positions.count <= size_, "one pass only");
    std::iota(into.begin(), into.end(), positions.first);
  }
  uint64_t position_of(uint64_t pass, uint64_t sample) const override {
    return pass * size_ + sample;
  }

 private:
  const uint64_t size_;
};

}  // namespace

ReadAhead::ReadAhead(const Dataset& dataset, uint64_t first, uint64_t end, uint64_t size,
                     uint64_t at_once)
    : fetcher_(first < end ? dataset.fetcher() : nullptr), first_(first), size_(size) {
  MUSTER_CHECK(size > 0 && end <= dataset.size(), "samples of the data");
  if (fetcher_ == nullptr) return;
  ReadPlan plan;
  plan.order = std::make_shared<OwnOrder>(dataset.size());
  plan.batches = {.batch = size, .total = end, .first_sample = first};
  plan.lanes = {0};
  plan.ahead = at_once;
  fetcher_->follow(plan);
}

ReadAhead::~ReadAhead() {
  if (fetcher_ != nullptr) fetcher_->pause();
}

void ReadAhead::done(uint64_t i) {
  if (fetcher_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (i < next_) return;
  later_.insert(i);
  if (i == next_) tell();
}

void ReadAhead::reached(uint64_t sample) {
  if (fetcher_ == nullptr || sample < first_) return;
  const std::lock_guard lock(mutex_);
  const uint64_t batch = (sample - first_) / size_;
  if (batch <= next_) return;
  next_ = batch;
  later_.erase(later_.begin(), later_.lower_bound(batch));
  fetcher_->taken(next_ - 1, 0);
  tell();
}

// With mutex_ held.
void ReadAhead::tell() {
  const uint64_t before = next_;
  while (!later_.empty() && *later_.begin() == next_) {
    later_.erase(later_.begin());
    ++next_;
  }
  if (next_ > before) fetcher_->taken(next_ - 1, 0);
}

}  // namespace muster::data
