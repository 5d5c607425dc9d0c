// How near the fixed-point loops come to memcpy, which does no arithmetic at all.
//
// Speeds count the bytes actually read and written: memcpy, store_block and to_float 8 bytes per
// element, add_block 12. Noise on a shared machine comes and goes within a second, so each loop is
// timed in turn with memcpy, and what is compared is the median of each:
//   bytes/s    this loop          memcpy    memcpy, same run          of_memcpy    their ratio
// 256 KiB buffers stay in a core's second cache, 64 MiB ones do not. Every result is verified.
// A loop may beat memcpy: memory that is only written must be read into the cache first, which no
// one counts; add_block writes what it has read.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <benchmark/benchmark.h>

#include "muster/base/random.h"
#include "muster/exact/fixed_point.h"
#include "muster/exact/packed_ints.h"
#include "muster/exact/rotation.h"

namespace muster::exact {
namespace {

constexpr int kLanes = 8;
constexpr int kScale = 24;

struct Buffers {
  explicit Buffers(size_t n)
      : layout(std::vector<size_t>{n}), g(layout.elements()), copy(n), sum(n), out(n) {
    RandomStream random(1, Purpose::kUser);
    for (float& x : g) x = random.uniform() - 0.5f;
  }
  BlockLayout layout;
  std::vector<float> g, copy;
  std::vector<int32_t> sum;
  std::vector<float> out;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void compare(benchmark::State& state, Buffers& buffers, double bytes_per_element,
             const std::function<void(const Block&)>& body) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<double> ours, theirs;
  const size_t n = buffers.copy.size();
  // Small buffers are gone over several times, so that a sample is long enough to be timed and
  // finds them in the cache.
  const size_t repeats = std::max<size_t>(1, (size_t{4} << 20) / n);
  for ([[maybe_unused]] const auto _ : state) {
    auto start = Clock::now();
    for (size_t r = 0; r < repeats; ++r) {
      for (const Block& block : buffers.layout.blocks()) body(block);
    }
    ours.push_back(since(start));
    state.SetIterationTime(ours.back());
    start = Clock::now();
    for (size_t r = 0; r < repeats; ++r) {
      std::memcpy(buffers.copy.data(), buffers.g.data(), n * sizeof(float));
      benchmark::ClobberMemory();
    }
    theirs.push_back(since(start));
  }
  const double elements = static_cast<double>(n * repeats);
  const double speed = bytes_per_element * elements / median(ours);
  const double memcpy_speed = 8 * elements / median(theirs);
  using benchmark::Counter;
  state.counters["bytes/s"] = Counter(speed, Counter::kDefaults, Counter::kIs1024);
  state.counters["memcpy"] = Counter(memcpy_speed, Counter::kDefaults, Counter::kIs1024);
  state.counters["of_memcpy"] = speed / memcpy_speed;
  if (buffers.copy != buffers.g) state.SkipWithError("memcpy gave something else");
}

int32_t expected_q(float g) { return static_cast<int32_t>(std::lrint(std::ldexp(g, kScale))); }

void BM_StoreBlock(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  bool overflow = false;
  compare(state, b, 8, [&](const Block& block) {
    overflow |= store_block(part(std::span<const float>(b.g), block), kScale, kLanes,
                            &b.sum[block.begin]) > largest_exponent(kScale, kLanes);
  });
  for (size_t i = 0; i < b.sum.size(); ++i) {
    if (overflow || b.sum[i] != expected_q(b.g[i])) return state.SkipWithError("wrong sum");
  }
}

void BM_AddBlock(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  // Adding wraps after a while; it is defined to, so the result can still be verified.
  uint32_t added = 0;
  bool overflow = false;
  compare(state, b, 12, [&](const Block& block) {
    if (block.begin == 0) ++added;
    overflow |= add_block(part(std::span<const float>(b.g), block), kScale, kLanes,
                          &b.sum[block.begin]) > largest_exponent(kScale, kLanes);
  });
  for (size_t i = 0; i < b.sum.size(); ++i) {
    const uint32_t expected = added * static_cast<uint32_t>(expected_q(b.g[i]));
    if (overflow || static_cast<uint32_t>(b.sum[i]) != expected) {
      return state.SkipWithError("wrong sum");
    }
  }
}

// With stochastic rounding; what it gives lies within a unit of the exact product.
void BM_AddBlockStochastic(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  Stochastic rounding(1, 2, 3);
  const auto add = [&](const Block& block) {
    rounding.first = block.begin;
    add_block(part(std::span<const float>(b.g), block), kScale, kLanes, rounding,
              &b.sum[block.begin]);
  };
  compare(state, b, 12, add);
  std::fill(b.sum.begin(), b.sum.end(), 0);
  for (const Block& block : b.layout.blocks()) add(block);
  for (size_t i = 0; i < b.sum.size(); ++i) {
    if (std::abs(b.sum[i] - std::ldexp(double{b.g[i]}, kScale)) >= 1) {
      return state.SkipWithError("wrong sum");
    }
  }
}

void BM_ToFloat(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  for (size_t i = 0; i < b.sum.size(); ++i) b.sum[i] = expected_q(b.g[i]);
  compare(state, b, 8, [&](const Block& block) {
    to_float(part(std::span<const int32_t>(b.sum), block), kScale, &b.out[block.begin]);
  });
  for (size_t i = 0; i < b.sum.size(); ++i) {
    if (b.out[i] != std::ldexp(static_cast<float>(b.sum[i]), -kScale)) {
      return state.SkipWithError("wrong value");
    }
  }
}

// Packing of sums of `bits` bits: 4 bytes read or written for each element, and the packed bits.
// The comparison counts the 8 bytes of a copy for both: what matters is how long the sums are held
// up.
std::vector<int32_t> sums_of(size_t n, int64_t bits) {
  RandomStream random(2, Purpose::kUser);
  std::vector<int32_t> sums(n);
  for (int32_t& v : sums) v = static_cast<int32_t>(random.next_u32()) >> (32 - bits);
  return sums;
}

// Like gradients that were rounded to so many bits, after a rotation.
std::vector<int32_t> bell_of(size_t n, int64_t bits) {
  RandomStream random(2, Purpose::kUser);
  std::vector<int32_t> values(n);
  const float deviation = std::ldexp(0.25f, static_cast<int>(bits) - 1);
  for (int32_t& v : values) v = static_cast<int32_t>(std::lround(deviation * random.normal()));
  return values;
}

void BM_PackSmall(benchmark::State& state) {
  const auto values = bell_of(1 << 20, state.range(0));
  std::vector<std::byte> packed(largest_packed_size(values.size()));
  const size_t fast = pack(values, packed.data());
  size_t bytes = 0;
  while (state.KeepRunning()) bytes = pack(values, packed.data(), Packing::kSmall);
  state.counters["ns/element"] = benchmark::Counter(
      static_cast<double>(values.size()) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["of_fast_size"] = static_cast<double>(bytes) / static_cast<double>(fast);
}

void BM_UnpackAddSmall(benchmark::State& state) {
  const auto values = bell_of(1 << 20, state.range(0));
  std::vector<std::byte> packed(largest_packed_size(values.size()));
  packed.resize(pack(values, packed.data(), Packing::kSmall));
  std::vector<int32_t> sums(values.size());
  while (state.KeepRunning()) {
    if (!unpack_add(packed, sums)) return state.SkipWithError("not read");
  }
  state.counters["ns/element"] = benchmark::Counter(
      static_cast<double>(values.size()) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_Pack(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  b.sum = sums_of(b.sum.size(), state.range(1));
  std::vector<std::byte> packed(largest_packed_size(b.sum.size()));
  size_t bytes = 0;
  compare(state, b, 8, [&](const Block& block) {
    if (block.begin == 0) bytes = pack(b.sum, packed.data());
  });
  std::vector<int32_t> back(b.sum.size());
  packed.resize(bytes);
  if (!unpack(packed, back) || back != b.sum) state.SkipWithError("wrong values");
}

void BM_UnpackAdd(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  const auto values = sums_of(b.sum.size(), state.range(1));
  std::vector<std::byte> packed(largest_packed_size(values.size()));
  packed.resize(pack(values, packed.data()));
  uint32_t added = 0;
  bool good = true;
  compare(state, b, 8, [&](const Block& block) {
    if (block.begin != 0) return;
    good &= unpack_add(packed, b.sum);
    ++added;
  });
  for (size_t i = 0; i < values.size(); ++i) {
    good &= static_cast<uint32_t>(b.sum[i]) == added * static_cast<uint32_t>(values[i]);
  }
  if (!good) state.SkipWithError("wrong sums");
}

void BM_Rotate(benchmark::State& state) {
  Buffers b(static_cast<size_t>(state.range(0)) / sizeof(float));
  const Rotation rotation(1, 2);
  std::vector<float> rotated = b.g;
  compare(state, b, 8, [&](const Block& block) {
    rotate(part(std::span(rotated), block), rotation, block.begin);
  });
}

constexpr int64_t kInCache = 256 << 10;
constexpr int64_t kInMemory = 64 << 20;
BENCHMARK(BM_StoreBlock)
    ->Arg(kInCache)
    ->Arg(kInMemory)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AddBlock)
    ->Arg(kInCache)
    ->Arg(kInMemory)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AddBlockStochastic)
    ->Arg(kInCache)
    ->Arg(kInMemory)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PackSmall)->Arg(2)->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_UnpackAddSmall)->Arg(2)->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Pack)
    ->ArgsProduct({{kInCache, kInMemory}, {3, 5, 7, 10}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_UnpackAdd)
    ->ArgsProduct({{kInCache, kInMemory}, {3, 5, 7, 10}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Rotate)->Arg(kInCache)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ToFloat)
    ->Arg(kInCache)
    ->Arg(kInMemory)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::exact
