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

template <bool kAdd>
bool unpack_into(std::span<const std::byte> packed, std::span<int32_t> values, Isa isa) {
  const size_t groups = groups_of(values.size());
  if (packed.size() < groups) return false;
  const auto widths = packed.first(groups);
  size_t bytes = groups;
  for (const std::byte w : widths) {
    if (w > std::byte{32}) return false;
    bytes += static_cast<size_t>(w) * kWords;
  }
  if (packed.size() < bytes) return false;
  const std::byte* from = packed.data() + groups;
  for (size_t g = 0; g < groups; ++g) {
    const int width = static_cast<int>(widths[g]);
    const auto part =
        values.subspan(g * kPackGroup, std::min(kPackGroup, values.size() - g * kPackGroup));
    if (width == 0) {
      if (!kAdd) std::ranges::fill(part, 0);
    } else if (part.size() == kPackGroup) {
      run_for(isa, UnpackGroup<kAdd>{}, from, width, part.data());
    } else {
      std::array<int32_t, kPackGroup> whole{};
      std::ranges::copy(part, whole.begin());
      run_for(isa, UnpackGroup<kAdd>{}, from, width, whole.data());
      std::copy_n(whole.begin(), part.size(), part.begin());
    }
    from += static_cast<size_t>(width) * kWords;
  }
  return true;
}

}  // namespace

size_t largest_packed_size(size_t values) { return groups_of(values) * (1 + 32 * kWords); }

size_t pack(std::span<const int32_t> values, std::byte* out, Isa isa) {
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
    widths[g] = static_cast<std::byte>(width);
    if (width == 0) continue;
    run_for(isa, PackGroup{}, from, width, to);
    to += static_cast<size_t>(width) * kWords;
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
