// The memory of a worker whose state the program looks into: its tensors are views of the weights
// there, and the program may keep some of them when the worker has ended.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "muster/base/memory.h"

namespace muster {

// Host memory. State is freed when neither the worker nor an owner() needs it any more. Safe for
// concurrent use.
class LentMemory final : public Memory {
 public:
  Buffer allocate(size_t bytes, BufferUse use) override {
    auto buffer = host_memory().allocate(bytes, use);
    if (use != BufferUse::kState) return buffer;
    auto* const data = buffer.data();
    const std::lock_guard lock(mutex_);
    state_[data] = std::make_shared<Buffer>(std::move(buffer));
    return {*this, data, bytes};
  }

  // Keeps the state at this address where it is; null: there is none. It may outlive this object.
  std::shared_ptr<const void> owner(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    const auto behind = state_.upper_bound(at);
    if (behind == state_.begin()) return nullptr;
    const auto& [first, buffer] = *std::prev(behind);
    return at < first + buffer->size() ? buffer : nullptr;
  }

 private:
  void free(std::byte* data, size_t /*size*/) override {
    const std::lock_guard lock(mutex_);
    state_.erase(data);
  }

  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<Buffer>> state_;
};

}  // namespace muster
