// One loop, compiled for several instruction sets, chosen when the program runs.
//
// Our programs are built for the oldest x86-64, so that one package runs everywhere; the few loops
// that touch every gradient and every weight deserve the vectors of the machine they land on.
//
//   struct Scale {
//     MUSTER_ALWAYS_INLINE void operator()(const float* __restrict x, size_t n, float a,
//                                          float* __restrict y) const {
//       for (size_t i = 0; i < n; ++i) y[i] = a * x[i];
//     }
//   };
//   run_for(best_isa(), Scale{}, x, n, a, y);
//
// The compiler vectorises the body once per instruction set. Every set gives the same bits as long
// as the body is element by element (or sums in an order it spells out): vector and scalar add,
// multiply, divide and square root are all rounded by IEEE 754. It must be compiled with
// -ffp-contract=off, as all our code is: AVX-512 could fuse a multiplication with an addition, the
// baseline could not. Tests hold each user to it by running all of usable_isas().
//
// Why not target_clones: it hides the variants behind a symbol resolver (ifunc), so that a test
// cannot call each of them, sanitizers run before they are ready, and musl has no such thing.
#pragma once

#include <string_view>
#include <vector>

#define MUSTER_ALWAYS_INLINE inline __attribute__((always_inline))

namespace muster {

enum class Isa { kBaseline, kAvx2, kAvx512 };

std::string_view isa_name(Isa isa);
// The widest that this processor and its operating system can run. Costs a few nanoseconds.
Isa best_isa();
// All that can run here, the baseline first.
std::vector<Isa> usable_isas();

namespace internal {
#if defined(__x86_64__)
template <typename Kernel, typename... Args>
__attribute__((target("avx2"))) auto run_avx2(Kernel kernel, Args... args) {
  return kernel(args...);
}
template <typename Kernel, typename... Args>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) auto run_avx512(Kernel kernel,
                                                                              Args... args) {
  return kernel(args...);
}
#endif
template <typename Kernel, typename... Args>
auto run_baseline(Kernel kernel, Args... args) {
  return kernel(args...);
}
}  // namespace internal

// kernel(args...), compiled for `isa`, which must be one of usable_isas(). The kernel's call
// operator must be MUSTER_ALWAYS_INLINE; arguments are passed by value.
template <typename Kernel, typename... Args>
auto run_for([[maybe_unused]] Isa isa, Kernel kernel, Args... args) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return internal::run_avx512(kernel, args...);
  if (isa == Isa::kAvx2) return internal::run_avx2(kernel, args...);
#endif
  return internal::run_baseline(kernel, args...);
}

}  // namespace muster
