#include "muster/exact/packed_ints.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace muster::exact {
namespace {

static_assert(std::endian::native == std::endian::little, "the format has little-endian words");

constexpr size_t kStreams = 16;
constexpr size_t kRows = kPackGroup / kStreams;
// One word of each stream. A vector of the compiler: whatever the instruction set has for it.
using Words = uint32_t __attribute__((vector_size(kStreams * sizeof(uint32_t))));
using Ints = int32_t __attribute__((vector_size(kStreams * sizeof(int32_t))));
constexpr size_t kWords = sizeof(Words);  // bytes

template <typename V>
MUSTER_ALWAYS_INLINE void load(V& v, const void* from) {
  std::memcpy(&v, from, sizeof(V));
}
template <typename V>
MUSTER_ALWAYS_INLINE void store(void* to, const V& v) {
  std::memcpy(to, &v, sizeof(V));
}

struct Width {
  MUSTER_ALWAYS_INLINE int operator()(const int32_t* values) const {
    Ints any = {};
    Ints bits = {};
    for (size_t r = 0; r < kRows; ++r) {
      Ints v;  // NOLINT(*-init-variables): load writes it
      load(v, values + r * kStreams);
      any |= v;
      bits |= v ^ (v >> 31);
    }
    std::array<uint32_t, kStreams> a;  // NOLINT(*-member-init): written at once
    std::array<uint32_t, kStreams> b;  // NOLINT(*-member-init): written at once
    store(a.data(), any);
    store(b.data(), bits);
    uint32_t all_any = 0;
    uint32_t all_bits = 0;
    for (size_t c = 0; c < kStreams; ++c) {
      all_any |= a[c];
      all_bits |= b[c];
    }
    return all_any == 0 ? 0 : std::bit_width(all_bits) + 1;
  }
};

struct PackGroup {
  MUSTER_ALWAYS_INLINE void operator()(const int32_t* values, int width, std::byte* out) const {
    const uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
    Words open = {};  // words that are not full yet
    int used = 0;     // bits of them
    for (size_t r = 0; r < kRows; ++r) {
      Words v;  // NOLINT(*-init-variables): load writes it
      load(v, values + r * kStreams);
      v &= mask;
      open |= v << used;
      used += width;
      if (used < 32) continue;
      store(out, open);
      out += kWords;
      used -= 32;
      open = used == 0 ? Words{} : v >> (width - used);
    }
  }
};

template <bool kAdd>
struct UnpackGroup {
  MUSTER_ALWAYS_INLINE void operator()(const std::byte* packed, int width, int32_t* values) const {
    const int rest = 32 - width;
    Words open = {};  // words of which a part has been read
    int left = 0;     // bits of them that have not
    for (size_t r = 0; r < kRows; ++r) {
      Words v = open >> ((32 - left) & 31);  // with left == 0 not used
      if (left >= width) {
        left -= width;
      } else {
        Words next;  // NOLINT(*-init-variables): load writes it
        load(next, packed);
        packed += kWords;
        v = left == 0 ? next : v | next << left;
        open = next;
        left += 32 - width;
      }
      // The sign is the highest of the bits.
      const Ints x = reinterpret_cast<Ints>(v << rest) >> rest;
      if constexpr (kAdd) {
        Words sum;  // NOLINT(*-init-variables): load writes it
        load(sum, values + r * kStreams);
        store(values + r * kStreams, sum + reinterpret_cast<Words>(x));
      } else {
        store(values + r * kStreams, x);
      }
    }
  }
};

size_t groups_of(size_t values) { return (values + kPackGroup - 1) / kPackGroup; }

constexpr unsigned kRice = 64;  // the byte of a group with Rice codes, plus k
constexpr int kMostRiceBits = 7;
constexpr uint32_t kMostOnes = 24;  // so that a code fits into 32 bits

// 2 v, or -2 v - 1.
MUSTER_ALWAYS_INLINE uint32_t unsigned_of(int32_t v) {
  return (static_cast<uint32_t>(v) << 1) ^ static_cast<uint32_t>(v >> 31);
}
MUSTER_ALWAYS_INLINE int32_t signed_of(uint32_t u) {
  return static_cast<int32_t>((u >> 1) ^ (0u - (u & 1)));
}

// Of a group: all ones of its codes with k bits, and the largest value.
struct RiceSize {
  MUSTER_ALWAYS_INLINE uint64_t operator()(const int32_t* values, int k, uint32_t* largest) const {
    uint32_t ones = 0;  // 512 values of less than 2^32 / 512, or the largest is too large anyway
    uint32_t most = 0;
    for (size_t i = 0; i < kPackGroup; ++i) {
      const uint32_t u = unsigned_of(values[i]);
      ones += (u >> k) & 0x7FFFFF;
      most = u > most ? u : most;
    }
    *largest = most;
    return ones;
  }
};

// The k with the fewest bytes, if they are fewer than with `width` bits; else -1.
int best_rice(const int32_t* values, int width, Isa isa) {
  int best = -1;
  size_t fewest = static_cast<size_t>(width) * kWords - sizeof(uint16_t);
  // Of values of a bell curve the best k is a few below the width.
  for (int k = std::max(0, width - 4); k <= std::min(kMostRiceBits, width - 2); ++k) {
    uint32_t largest = 0;
    const uint64_t ones = run_for(isa, RiceSize{}, values, k, &largest);
    if (largest >> k > kMostOnes) continue;
    const size_t bytes = (ones + kPackGroup * static_cast<size_t>(k + 1) + 7) / 8;
    if (bytes >= fewest) continue;
    fewest = bytes;
    best = k;
  }
  return best;
}

// Returns the end.
std::byte* write_rice(const int32_t* values, int k, std::byte* out) {
  std::byte* to = out + sizeof(uint16_t);
  uint64_t open = 0;
  int used = 0;
  for (size_t i = 0; i < kPackGroup; ++i) {
    const uint32_t u = unsigned_of(values[i]);
    const uint32_t ones = u >> k;
    const uint64_t low = u & ((1u << k) - 1);
    open |= ((low << (ones + 1)) | ((uint64_t{1} << ones) - 1)) << used;
    used += static_cast<int>(ones) + 1 + k;
    if (used < 32) continue;
    const auto word = static_cast<uint32_t>(open);
    std::memcpy(to, &word, sizeof(word));
    to += sizeof(word);
    open >>= 32;
    used -= 32;
  }
  for (; used > 0; used -= 8, open >>= 8) *to++ = static_cast<std::byte>(open & 0xFF);
  const auto bytes = static_cast<uint16_t>(to - out - ptrdiff_t{sizeof(uint16_t)});
  std::memcpy(out, &bytes, sizeof(bytes));
  return to;
}

// False: these bytes are not the codes of a group.
bool read_rice(std::span<const std::byte> codes, int k, std::array<int32_t, kPackGroup>& values) {
  // With zeros behind it, so that words can be read whole.
  std::array<std::byte, 32 * kWords + 16> room;  // NOLINT(*-member-init): written where it is read
  if (codes.size() > 32 * kWords) return false;
  std::ranges::copy(codes, room.begin());
  std::fill_n(room.begin() + static_cast<ptrdiff_t>(codes.size()), 16, std::byte{0});
  const std::byte* next = room.data();
  const std::byte* const end = next + codes.size() + 8;
  const uint32_t mask = (1u << k) - 1;
  uint64_t open = 0;
  int left = 0;
  for (int32_t& value : values) {
    if (left < 32) {
      if (next > end) return false;
      uint32_t word = 0;
      std::memcpy(&word, next, sizeof(word));
      next += sizeof(word);
      open |= uint64_t{word} << left;
      left += 32;
    }
    const auto ones = static_cast<uint32_t>(std::countr_one(open));
    if (ones > kMostOnes) return false;
    value = signed_of((ones << k) | (static_cast<uint32_t>(open >> (ones + 1)) & mask));
    open >>= ones + 1 + static_cast<uint32_t>(k);
    left -= static_cast<int>(ones) + 1 + k;
  }
  // What was read and not used.
  const ptrdiff_t used = (next - room.data()) - left / 8;
  return used == static_cast<ptrdiff_t>(codes.size());
}

// The values of a group; adds them, or takes their place.
template <bool kAdd>
void put(std::span<const int32_t> from, std::span<int32_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const auto old = kAdd ? static_cast<uint32_t>(to[i]) : 0;
    to[i] = static_cast<int32_t>(old + static_cast<uint32_t>(from[i]));
  }
}

template <bool kAdd>
bool unpack_into(std::span<const std::byte> packed, std::span<int32_t> values, Isa isa) {
  const size_t groups = groups_of(values.size());
  if (packed.size() < groups) return false;
  const auto widths = packed.first(groups);
  packed = packed.subspan(groups);
  std::array<int32_t, kPackGroup> whole;  // NOLINT(*-member-init): written before it is read
  for (size_t g = 0; g < groups; ++g) {
    const auto width = std::to_integer<unsigned>(widths[g]);
    const auto part =
        values.subspan(g * kPackGroup, std::min(kPackGroup, values.size() - g * kPackGroup));
    if (width == 0) {
      if (!kAdd) std::ranges::fill(part, 0);
      continue;
    }
    size_t bytes = width * kWords;
    if (width >= kRice && width <= kRice + unsigned{kMostRiceBits}) {
      uint16_t size = 0;
      if (packed.size() < sizeof(size)) return false;
      std::memcpy(&size, packed.data(), sizeof(size));
      packed = packed.subspan(sizeof(size));
      bytes = size;
      if (packed.size() < bytes) return false;
      if (!read_rice(packed.first(bytes), static_cast<int>(width - kRice), whole)) return false;
      put<kAdd>(whole, part);
    } else if (width > 32 || packed.size() < bytes) {
      return false;
    } else if (part.size() == kPackGroup) {
      run_for(isa, UnpackGroup<kAdd>{}, packed.data(), static_cast<int>(width), part.data());
    } else {
      run_for(isa, UnpackGroup<false>{}, packed.data(), static_cast<int>(width), whole.data());
      put<kAdd>(whole, part);
    }
    packed = packed.subspan(bytes);
  }
  return true;
}

}  // namespace

size_t largest_packed_size(size_t values) { return groups_of(values) * (1 + 32 * kWords); }

size_t pack(std::span<const int32_t> values, std::byte* out, Packing packing, Isa isa) {
  const size_t groups = groups_of(values.size());
  std::byte* widths = out;
  std::byte* to = out + groups;
  std::array<int32_t, kPackGroup> filled;  // NOLINT(*-member-init): written before it is read
  for (size_t g = 0; g < groups; ++g) {
    const auto part =
        values.subspan(g * kPackGroup, std::min(kPackGroup, values.size() - g * kPackGroup));
    const int32_t* from = part.data();
    if (part.size() < kPackGroup) {
      std::ranges::copy(part, filled.begin());
      std::fill(filled.begin() + static_cast<ptrdiff_t>(part.size()), filled.end(), 0);
      from = filled.data();
    }
    const int width = run_for(isa, Width{}, from);
    const int rice = packing == Packing::kSmall && width > 0 ? best_rice(from, width, isa) : -1;
    widths[g] = static_cast<std::byte>(rice >= 0 ? kRice + static_cast<unsigned>(rice)
                                                 : static_cast<unsigned>(width));
    if (rice >= 0) {
      to = write_rice(from, rice, to);
    } else if (width > 0) {
      run_for(isa, PackGroup{}, from, width, to);
      to += static_cast<size_t>(width) * kWords;
    }
  }
  return static_cast<size_t>(to - out);
}

bool unpack(std::span<const std::byte> packed, std::span<int32_t> values, Isa isa) {
  return unpack_into<false>(packed, values, isa);
}

bool unpack_add(std::span<const std::byte> packed, std::span<int32_t> sums, Isa isa) {
  return unpack_into<true>(packed, sums, isa);
}

}  // namespace muster::exact
