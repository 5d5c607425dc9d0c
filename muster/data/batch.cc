#include "muster/data/batch.h"

#include <algorithm>

namespace muster::data {

void Batch::reserve(const Schema& schema, uint64_t samples_wanted) {
  const size_t input_bytes = samples_wanted * schema.input_bytes();
  const size_t target_bytes = samples_wanted * schema.target_bytes();
  if (inputs.size() < input_bytes) {
    inputs = memory->allocate(input_bytes, BufferUse::kBatch);
  }
  if (targets.size() < target_bytes) {
    targets = memory->allocate(target_bytes, BufferUse::kBatch);
  }
  samples.reserve(samples_wanted);
}

Status read_samples(const Dataset& dataset, std::span<const uint64_t> samples, Batch& batch,
                    const KeepWaiting& keep_waiting) {
  batch.reserve(dataset.schema(), samples.size());
  batch.count = samples.size();
  batch.samples.assign(samples.begin(), samples.end());
  return dataset.read_all(samples, batch.inputs.data(), batch.targets.data(), keep_waiting);
}

Status read_range(const Dataset& dataset, uint64_t first, uint64_t count, Batch& batch,
                  const KeepWaiting& keep_waiting) {
  const uint64_t begin = std::min(first, dataset.size());
  const uint64_t end = begin + std::min(count, dataset.size() - begin);
  std::vector<uint64_t> samples(end - begin);
  for (uint64_t i = begin; i < end; ++i) samples[i - begin] = i;
  return read_samples(dataset, samples, batch, keep_waiting);
}

std::unique_ptr<Batch> BatchPool::acquire() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto batch = std::move(free_.back());
      free_.pop_back();
      return batch;
    }
    ++made_;
  }
  auto batch = std::make_unique<Batch>();
  batch->memory = &memory_;
  batch->reserve(schema_, capacity_);
  return batch;
}

void BatchPool::give_back(std::unique_ptr<Batch> batch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(batch));
}

uint64_t BatchPool::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

BorrowedBatch& BorrowedBatch::operator=(BorrowedBatch&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::move(other.pool_);
    batch_ = std::move(other.batch_);
  }
  return *this;
}

void BorrowedBatch::release() {
  if (batch_) pool_->give_back(std::move(batch_));
}

}  // namespace muster::data
