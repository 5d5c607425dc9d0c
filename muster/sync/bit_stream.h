// Bits, one after the other, and Rice codes of gaps: what the codes of this module write.
//
// From the lowest bit of each byte up; a stream is filled up to a whole byte. Pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::sync {

// Appends to `out`.
class BitWriter {
 public:
  explicit BitWriter(std::vector<std::byte>& out) : out_(out) {}
  // At most 32.
  void put(uint32_t bits, int count) {
    open_ |= uint64_t{bits} << used_;
    used_ += count;
    while (used_ >= 8) {
      out_.push_back(static_cast<std::byte>(open_ & 0xFF));
      open_ >>= 8;
      used_ -= 8;
    }
  }
  void ones(uint32_t count) {
    for (; count >= 32; count -= 32) put(~0u, 32);
    put((1u << count) - 1, static_cast<int>(count));
  }
  void finish() {
    if (used_ > 0) put(0, 8 - used_);
  }

 private:
  std::vector<std::byte>& out_;
  uint64_t open_ = 0;
  int used_ = 0;
};

// Beyond the end there are zeros; overrun() tells.
class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> from) : from_(from) {}
  // At most 32.
  uint32_t get(int count) {
    fill();
    const auto bits = static_cast<uint32_t>(open_ & ((uint64_t{1} << count) - 1));
    drop(count);
    return bits;
  }
  // How many ones come before the next zero, which is read too. More than `most` are not counted.
  uint32_t ones(uint32_t most) {
    uint32_t count = 0;
    while (count <= most) {
      fill();
      const int run = std::countr_one(open_);
      if (run < 32) {
        drop(run + 1);
        return count + static_cast<uint32_t>(run);
      }
      drop(32);
      count += 32;
    }
    return count;
  }
  bool overrun() const { return next_ > from_.size() + static_cast<size_t>(left_ / 8); }
  // Of whole bytes.
  size_t used() const { return next_ - static_cast<size_t>(left_ / 8); }

 private:
  void fill() {
    while (left_ <= 56) {
      const auto byte = next_ < from_.size() ? std::to_integer<uint64_t>(from_[next_]) : 0;
      open_ |= byte << left_;
      left_ += 8;
      ++next_;
    }
  }
  void drop(int count) {
    open_ >>= count;
    left_ -= count;
  }

  std::span<const std::byte> from_;
  size_t next_ = 0;
  uint64_t open_ = 0;
  int left_ = 0;
};

// Ascending places, less than `size`: how many come between one and the next, as a Rice code, gap
// >> bits ones, a zero, then the lowest bits of the gap.
struct RiceCode {
  // For `count` places; 2^bits is near ln 2 times the mean gap.
  RiceCode(size_t size, size_t count) : size_(static_cast<uint32_t>(size)) {
    const size_t gap = size * 45 / (64 * count);
    bits_ = gap < 2 ? 0 : static_cast<int>(std::bit_width(gap)) - 1;
  }
  void write(std::span<const uint16_t> places, BitWriter& out) const {
    uint32_t next = 0;
    for (const uint16_t place : places) {
      const uint32_t gap = place - next;
      out.ones(gap >> bits_);
      out.put((gap & ((1u << bits_) - 1)) << 1, bits_ + 1);
      next = place + 1u;
    }
  }
  // False: there is no such code.
  bool read(BitReader& from, std::span<uint16_t> places) const {
    uint32_t next = 0;
    for (uint16_t& place : places) {
      const uint32_t high = from.ones(size_ >> bits_);
      const uint32_t at = next + (high << bits_) + from.get(bits_);
      if (at >= size_ || from.overrun()) return false;
      place = static_cast<uint16_t>(at);
      next = at + 1;
    }
    return true;
  }
  // The most bits that `count` places take.
  size_t most_bits(size_t count) const {
    const auto each = static_cast<size_t>(bits_);
    return (size_ >> each) + count * (each + 1);
  }

 private:
  uint32_t size_;
  int bits_;
};

}  // namespace muster::sync
