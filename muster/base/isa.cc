#include "muster/base/isa.h"

namespace muster {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> isas = {Isa::kBaseline};
  const Isa best = best_isa();
  if (best != Isa::kBaseline) isas.push_back(Isa::kAvx2);  // every AVX-512 machine has AVX2
  if (best == Isa::kAvx512) isas.push_back(Isa::kAvx512);
  return isas;
}

}  // namespace muster
