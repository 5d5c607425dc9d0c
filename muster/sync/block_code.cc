#include "muster/sync/block_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "muster/base/isa.h"
#include "muster/exact/block_layout.h"
#include "muster/sync/bit_stream.h"
#include "muster/sync/largest.h"
#include "muster/sync/subset.h"

namespace muster::sync {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Places = std::array<uint16_t, exact::kBlockSize>;

template <class T>
void append(T value, std::vector<std::byte>& out) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <class T>
T take(std::span<const std::byte>& from) {
  T value{};
  std::memcpy(&value, from.data(), sizeof(value));
  from = from.subspan(sizeof(value));
  return value;
}

// Several sums side by side, which a compiler turns into vectors, added up in one order.
template <class Term>
double sum_of(std::span<const float> values, Term term) {
  constexpr size_t kSide = 8;
  std::array<double, kSide> sums = {};
  size_t i = 0;
  for (; i + kSide <= values.size(); i += kSide) {
    for (size_t k = 0; k < kSide; ++k) sums[k] += term(values[i + k]);
  }
  for (size_t k = 0; i < values.size(); ++i, ++k) sums[k] += term(values[i]);
  double all = 0;
  for (const double s : sums) all += s;
  return all;
}

float mean_of(double sum, double count) { return count > 0 ? static_cast<float>(sum / count) : 0; }

class TopK final : public BlockCode {
 public:
  explicit TopK(int64_t keep) : keep_(keep) {}

  void encode(std::span<float> values, std::vector<std::byte>& out) const override {
    Places room;  // NOLINT(*-member-init): written before it is read
    const auto places = std::span(room).first(count(values.size()));
    find_largest(values, places);
    double all = 0;
    for (const uint16_t p : places) all += std::abs(values[p]);
    const double border = all / static_cast<double>(places.size());
    std::array<double, 2> sums = {};
    std::array<double, 2> counts = {};
    for (const uint16_t p : places) {
      const size_t high = std::abs(values[p]) >= border ? 1 : 0;
      sums[high] += std::abs(values[p]);
      counts[high] += 1;
    }
    const std::array<float, 2> means = {mean_of(sums[0], counts[0]), mean_of(sums[1], counts[1])};
    for (const float m : means) append(m, out);
    BitWriter bits(out);
    for (const uint16_t p : places) {
      const bool negative = values[p] < 0;
      const size_t high = std::abs(values[p]) >= border ? 1 : 0;
      bits.put((negative ? 2u : 0u) + static_cast<uint32_t>(high), 2);
      values[p] -= negative ? -means[high] : means[high];
    }
    bits.finish();
    BitWriter gaps(out);
    RiceCode(values.size(), places.size()).write(places, gaps);
    gaps.finish();
  }

  bool add(std::span<const std::byte> from, std::span<float> sum) const override {
    Places room;  // NOLINT(*-member-init): written before it is read
    const auto places = std::span(room).first(count(sum.size()));
    const size_t signs = (places.size() + 3) / 4;
    if (from.size() < 2 * sizeof(float) + signs) return false;
    std::array<float, 2> means = {};
    for (float& m : means) m = take<float>(from);
    if (!std::isfinite(means[0]) || !std::isfinite(means[1])) return false;
    BitReader gaps(from.subspan(signs));
    if (!RiceCode(sum.size(), places.size()).read(gaps, places)) return false;
    if (gaps.used() + signs != from.size()) return false;
    BitReader bits(from.first(signs));
    for (const uint16_t p : places) {
      const uint32_t code = bits.get(2);
      const float mean = means.at(code & 1);
      sum[p] += (code & 2) != 0 ? -mean : mean;
    }
    return true;
  }

  size_t largest_size(size_t values) const override {
    const size_t n = count(values);
    return 2 * sizeof(float) + (n + 3) / 4 + (RiceCode(values, n).most_bits(n) + 7) / 8;
  }

 private:
  size_t count(size_t values) const { return share_of(values, keep_); }
  const int64_t keep_;
};

class Threshold final : public BlockCode {
 public:
  explicit Threshold(double threshold) : threshold_(threshold) {}

  void encode(std::span<float> values, std::vector<std::byte>& out) const override {
    Places room;  // NOLINT(*-member-init): written before it is read
    const double squares = sum_of(values, [](double v) { return v * v; });
    const auto border =
        static_cast<float>(threshold_ * std::sqrt(squares / static_cast<double>(values.size())));
    size_t count = 0;
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i]) <= border) continue;
      room[count++] = static_cast<uint16_t>(i);
      sum += std::abs(values[i]);
    }
    if (count == 0) {  // as with all blocks of few elements
      find_largest(values, std::span(room).first(1));
      sum = std::abs(values[room[0]]);
      count = 1;
    }
    const auto places = std::span(room).first(count);
    const float mean = mean_of(sum, static_cast<double>(count));
    append(mean, out);
    append(static_cast<uint16_t>(count), out);
    BitWriter signs(out);
    for (const uint16_t p : places) {
      const bool negative = values[p] < 0;
      signs.put(negative ? 1 : 0, 1);
      values[p] -= negative ? -mean : mean;
    }
    signs.finish();
    BitWriter gaps(out);
    RiceCode(values.size(), count).write(places, gaps);
    gaps.finish();
  }

  bool add(std::span<const std::byte> from, std::span<float> sum) const override {
    if (from.size() < sizeof(float) + sizeof(uint16_t)) return false;
    const auto mean = take<float>(from);
    const auto count = take<uint16_t>(from);
    const size_t signs = (size_t{count} + 7) / 8;
    if (count == 0 || count > sum.size() || from.size() < signs || !std::isfinite(mean))
      return false;
    Places room;  // NOLINT(*-member-init): written before it is read
    const auto places = std::span(room).first(count);
    BitReader gaps(from.subspan(signs));
    if (!RiceCode(sum.size(), count).read(gaps, places)) return false;
    if (gaps.used() + signs != from.size()) return false;
    BitReader bits(from.first(signs));
    for (const uint16_t p : places) sum[p] += bits.get(1) != 0 ? -mean : mean;
    return true;
  }

  // All of them: two bits for each place. Fewer need more for each, but fewer in all.
  size_t largest_size(size_t values) const override {
    return sizeof(float) + sizeof(uint16_t) + (values + 7) / 8 + (2 * values + 7) / 8;
  }

 private:
  const double threshold_;
};

// Sums of the negative values and of the others, and how many are negative: eight of each side by
// side, added up in one order.
struct SignSums {
  static constexpr size_t kSide = 8;
  using Floats = float __attribute__((vector_size(kSide * sizeof(float))));
  using Doubles = double __attribute__((vector_size(kSide * sizeof(double))));
  using Ints = int64_t __attribute__((vector_size(kSide * sizeof(int64_t))));
  double below = 0;
  double above = 0;
  double count = 0;  // of those below
  struct Kernel {
    MUSTER_ALWAYS_INLINE void operator()(const float* values, size_t size, SignSums* out) const {
      // Vectors by name: of a loop over an array compilers make branches, which random signs make
      // slow.
      Doubles belows = {};
      Doubles aboves = {};
      Ints counts = {};
      size_t i = 0;
      for (; i + kSide <= size; i += kSide) {
        Floats eight;  // NOLINT(*-init-variables): written at once
        std::memcpy(&eight, values + i, sizeof(eight));
        const Doubles v = __builtin_convertvector(eight, Doubles);
        const Doubles zero = {};
        const Doubles low = v < zero ? v : zero;
        belows += low;
        aboves += v - low;   // 0, or v
        counts -= v < zero;  // a comparison that holds is -1
      }
      for (size_t k = 0; i < size; ++i, ++k) {
        const double v = values[i];
        const double low = v < 0 ? v : 0;
        belows[k] += low;
        aboves[k] += v - low;
        counts[k] += v < 0;
      }
      for (size_t k = 0; k < kSide; ++k) {
        out->below += belows[k];
        out->above += aboves[k];
        out->count += static_cast<double>(counts[k]);
      }
    }
  };
};

// Writes the signs of whole bytes, and subtracts the mean of those with the same sign.
struct TakeSigns {
  MUSTER_ALWAYS_INLINE void operator()(float* __restrict values, size_t bytes, float above,
                                       float below, std::byte* __restrict out) const {
    for (size_t b = 0; b < bytes; ++b) {
      unsigned byte = 0;
      for (size_t k = 0; k < 8; ++k) byte |= static_cast<unsigned>(values[b * 8 + k] < 0) << k;
      out[b] = static_cast<std::byte>(byte);
    }
    for (size_t i = 0; i < bytes * 8; ++i) values[i] -= values[i] < 0 ? below : above;
  }
};

class OneBit final : public BlockCode {
 public:
  explicit OneBit(Isa isa) : isa_(isa) {}

  void encode(std::span<float> values, std::vector<std::byte>& out) const override {
    SignSums sums;
    run_for(isa_, SignSums::Kernel{}, values.data(), values.size(), &sums);
    const float above = mean_of(sums.above, static_cast<double>(values.size()) - sums.count);
    const float below = mean_of(sums.below, sums.count);
    append(above, out);
    append(below, out);
    const size_t whole = values.size() / 8;
    out.resize(out.size() + whole);
    run_for(isa_, TakeSigns{}, values.data(), whole, above, below, out.data() + out.size() - whole);
    const auto rest = values.subspan(whole * 8);
    if (rest.empty()) return;
    unsigned byte = 0;
    for (size_t k = 0; k < rest.size(); ++k) {
      byte |= (rest[k] < 0 ? 1u : 0u) << k;
      rest[k] -= rest[k] < 0 ? below : above;
    }
    out.push_back(static_cast<std::byte>(byte));
  }

  bool add(std::span<const std::byte> from, std::span<float> sum) const override {
    if (from.size() != largest_size(sum.size())) return false;
    std::array<float, 2> means = {};
    for (float& m : means) m = take<float>(from);
    if (!std::isfinite(means[0]) || !std::isfinite(means[1])) return false;
    for (size_t i = 0; i < sum.size(); i += 8) {
      const auto byte = std::to_integer<unsigned>(from[i / 8]);
      const auto eight = sum.subspan(i, std::min<size_t>(8, sum.size() - i));
      for (size_t k = 0; k < eight.size(); ++k) {
        eight[k] += (byte >> k & 1) != 0 ? means[1] : means[0];
      }
    }
    return true;
  }

  size_t largest_size(size_t values) const override { return 2 * sizeof(float) + (values + 7) / 8; }

 private:
  const Isa isa_;
};

}  // namespace

std::unique_ptr<BlockCode> make_block_code(const config::SyncOptions& sync, Isa isa) {
  if (sync.strategy == "topk") return std::make_unique<TopK>(sync.keep);
  if (sync.strategy == "threshold") return std::make_unique<Threshold>(sync.threshold);
  if (sync.strategy == "onebit") return std::make_unique<OneBit>(isa);
  return nullptr;
}

}  // namespace muster::sync
