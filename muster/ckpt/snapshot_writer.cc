#include "muster/ckpt/snapshot_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/clock.h"
#include "muster/base/text.h"

namespace muster::ckpt {
namespace {

// Each tensor begins on its own cache line, which keeps the copies aligned.
constexpr size_t kAlignment = 64;

size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void SnapshotBuffer::add_model(std::string name, DType dtype, std::vector<int64_t> shape,
                               std::span<const std::byte> data) {
  model_.push_back(copy_in(std::move(name), dtype, std::move(shape), data));
}

void SnapshotBuffer::add_state(std::string name, DType dtype, std::vector<int64_t> shape,
                               std::span<const std::byte> data) {
  state_.push_back(copy_in(std::move(name), dtype, std::move(shape), data));
}

SnapshotBuffer::Entry SnapshotBuffer::copy_in(std::string name, DType dtype,
                                              std::vector<int64_t> shape,
                                              std::span<const std::byte> data) {
  const size_t offset = aligned(size_);
  if (offset + data.size() > capacity_) reserve(std::max(offset + data.size(), 2 * capacity_));
  if (!data.empty()) std::memcpy(memory_.get() + offset, data.data(), data.size());
  size_ = offset + data.size();
  return {TensorView{std::move(name), dtype, std::move(shape), {}}, offset, data.size()};
}

void SnapshotBuffer::reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (size_ > 0) std::memcpy(larger.get(), memory_.get(), size_);
  memory_ = std::move(larger);
  capacity_ = bytes;
}

void SnapshotBuffer::clear() {
  model_.clear();
  state_.clear();
  size_ = 0;
}

std::vector<TensorView> SnapshotBuffer::views(const std::vector<Entry>& entries) const {
  std::vector<TensorView> views;
  views.reserve(entries.size());
  for (const auto& entry : entries) {
    views.push_back(entry.tensor);
    views.back().data = {memory_.get() + entry.offset, entry.size};
  }
  return views;
}

SnapshotWriter::SnapshotWriter(SnapshotStore& store, Log& log, std::function<void()> written)
    : store_(store),
      log_(log),
      written_(std::move(written)),
      thread_("muster-ckpt", [this] { run(); }) {}

SnapshotWriter::~SnapshotWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<SnapshotBuffer*> SnapshotWriter::begin() {
  MUSTER_RETURN_IF_ERROR(wait());
  buffer_.clear();
  begun_ = true;
  return &buffer_;
}

void SnapshotWriter::submit(SnapshotHeader header) {
  MUSTER_CHECK(begun_, "submit() without begin()");
  begun_ = false;
  {
    const std::lock_guard lock(mutex_);
    pending_ = std::move(header);
  }
  changed_.notify_all();
}

Status SnapshotWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_; });
  if (auto error = std::exchange(error_, std::nullopt)) return *std::move(error);
  return {};
}

void SnapshotWriter::run() {
  const SystemClock clock;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || pending_; });
    if (!pending_) return;  // what was submitted before the stop is still written
    // The caller does not touch pending_ or buffer_ until pending_ is gone.
    lock.unlock();
    const Moment start = clock.now();
    const auto model = buffer_.model();
    const auto state = buffer_.state();
    const Status status = store_.write({pending_->step, pending_->roster, pending_->best, model,
                                        state, std::move(pending_->meta)});
    if (status.ok()) {
      log_.info("snapshot of step {} written: {} in {}", pending_->step,
                human_bytes(static_cast<double>(buffer_.bytes())),
                human_seconds(seconds(clock.now() - start)));
      if (written_) written_();
    } else {
      // Not as an error: begin() or wait() returns it, and whoever calls them tells it once.
      log_.info("{}", status.error().message());
    }
    lock.lock();
    if (!status.ok()) error_ = status.error();
    pending_.reset();
    changed_.notify_all();
  }
}

}  // namespace muster::ckpt
