// Where the large buffers of a worker live: training state, sums of gradients, batches of samples.
// A session takes all three from the Memory it is given (train::Registries::memory), so this is the
// place where another kind of memory, such as a device's, is added.
//
// Everything that works on these buffers (optimizers, fixed-point sums, libtorch's CPU kernels)
// reads and writes them in place, so a Memory must be addressable by the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace muster {

enum class BufferUse : uint8_t {
  kState,  // weights, optimizer state, counters: zero at first
  kSums,   // of gradients: zero at first
  kBatch,  // inputs or targets of some samples: not zeroed
};

class Memory;

// Bytes of a Memory, given back to it on destruction. Aligned to 64 bytes at least: a cache line,
// and the longest vector.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // `data` came from `memory`, which must outlive this.
  Buffer(Memory& memory, std::byte* data, size_t size)
      : memory_(&memory), data_(data), size_(size) {}
  Buffer(Buffer&& other) noexcept
      : memory_(other.memory_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Safe for concurrent use.
class Memory {
 public:
  virtual ~Memory() = default;
  // Ends the process when there is no memory.
  virtual Buffer allocate(size_t bytes, BufferUse use) = 0;

 private:
  friend class Buffer;
  virtual void free(std::byte* data, size_t size) = 0;
};

inline Buffer::~Buffer() {
  if (data_ != nullptr) memory_->free(data_, size_);
}

// This machine's main memory. State and sums are in pages that have been touched: the first step
// pays for no page faults. From kHugePage on the kernel is asked for huge pages: the rows of a
// large matrix lie in a small page each, and a pass across them misses the TLB at every one. A
// kernel that has none to give gives small ones.
inline constexpr size_t kHugePage = size_t{2} << 20;
Memory& host_memory();

}  // namespace muster
