#include "muster/model/random_words.h"

#include "muster/base/random.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// GCC 12 takes the "undefined" operand inside its own AVX-512 intrinsics for a mistake of ours (GCC
// bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace muster::model {
namespace {

using Key = std::array<uint32_t, 2>;

constexpr size_t kBlocks = kRandomGroup / 4;

void baseline(Key key, uint64_t first, size_t groups, uint32_t* out) {
  for (size_t g = 0; g < groups; ++g, out += kRandomGroup) {
    for (size_t j = 0; j < kBlocks; ++j) {
      const uint64_t block = (first + g) * kBlocks + j;
      const auto words =
          philox(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0});
      out[2 * j] = words[0];
      out[2 * j + 1] = words[1];
      out[kRandomGroup / 2 + 2 * j] = words[2];
      out[kRandomGroup / 2 + 2 * j + 1] = words[3];
    }
  }
}

#if defined(__x86_64__)

// Philox's constants, as in base/random.h.
constexpr uint32_t kMultiply0 = 0xD2511F53;
constexpr uint32_t kMultiply1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

// By hand, because compilers do not see through the multiplication: left to GCC, the loop is six
// times slower. Both functions keep a word in the low half of a 64-bit lane and let the high half
// hold what it likes: mul_epu32 reads low halves only, and the last step takes low halves only. Two
// registers (AVX-512) or four (AVX2) per word are in flight, to hide the latency of the
// multiplication.

__attribute__((target("avx512f"))) void avx512(Key key, uint64_t first, size_t groups,
                                               uint32_t* out) {
  constexpr size_t kParts = 2;
  const __m512i multiply0 = _mm512_set1_epi64(kMultiply0);
  const __m512i multiply1 = _mm512_set1_epi64(kMultiply1);
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  for (size_t g = 0; g < groups; ++g, out += kRandomGroup) {
    __m512i c0[kParts], c1[kParts], c2[kParts], c3[kParts];
    for (size_t h = 0; h < kParts; ++h) {
      const auto block = static_cast<int64_t>((first + g) * kBlocks + 8 * h);
      c0[h] = _mm512_add_epi64(lanes, _mm512_set1_epi64(block));
      c1[h] = _mm512_srli_epi64(c0[h], 32);
      c2[h] = c3[h] = _mm512_setzero_si512();
    }
    Key k = key;
    for (int round = 0; round < 10; ++round) {
      const __m512i k0 = _mm512_set1_epi64(k[0]);
      const __m512i k1 = _mm512_set1_epi64(k[1]);
      for (size_t h = 0; h < kParts; ++h) {
        const __m512i p0 = _mm512_mul_epu32(c0[h], multiply0);
        const __m512i p1 = _mm512_mul_epu32(c2[h], multiply1);
        c0[h] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1[h]), k0);
        c2[h] = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3[h]), k1);
        c1[h] = p1;
        c3[h] = p0;
      }
      k[0] += kWeyl0;
      k[1] += kWeyl1;
    }
    for (size_t h = 0; h < kParts; ++h) {
      constexpr __mmask16 kOdd = 0xAAAA;
      _mm512_storeu_si512(out + 16 * h,
                          _mm512_mask_blend_epi32(kOdd, c0[h], _mm512_slli_epi64(c1[h], 32)));
      _mm512_storeu_si512(out + 32 + 16 * h,
                          _mm512_mask_blend_epi32(kOdd, c2[h], _mm512_slli_epi64(c3[h], 32)));
    }
  }
}

__attribute__((target("avx2"))) void avx2(Key key, uint64_t first, size_t groups, uint32_t* out) {
  constexpr size_t kParts = 4;
  const __m256i multiply0 = _mm256_set1_epi64x(kMultiply0);
  const __m256i multiply1 = _mm256_set1_epi64x(kMultiply1);
  const __m256i lanes = _mm256_set_epi64x(3, 2, 1, 0);
  for (size_t g = 0; g < groups; ++g, out += kRandomGroup) {
    __m256i c0[kParts], c1[kParts], c2[kParts], c3[kParts];
    for (size_t h = 0; h < kParts; ++h) {
      const auto block = static_cast<int64_t>((first + g) * kBlocks + 4 * h);
      c0[h] = _mm256_add_epi64(lanes, _mm256_set1_epi64x(block));
      c1[h] = _mm256_srli_epi64(c0[h], 32);
      c2[h] = c3[h] = _mm256_setzero_si256();
    }
    Key k = key;
    for (int round = 0; round < 10; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(k[0]);
      const __m256i k1 = _mm256_set1_epi64x(k[1]);
      for (size_t h = 0; h < kParts; ++h) {
        const __m256i p0 = _mm256_mul_epu32(c0[h], multiply0);
        const __m256i p1 = _mm256_mul_epu32(c2[h], multiply1);
        c0[h] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1[h]), k0);
        c2[h] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3[h]), k1);
        c1[h] = p1;
        c3[h] = p0;
      }
      k[0] += kWeyl0;
      k[1] += kWeyl1;
    }
    for (size_t h = 0; h < kParts; ++h) {
      constexpr int kOdd = 0xAA;
      const __m256i low = _mm256_blend_epi32(c0[h], _mm256_slli_epi64(c1[h], 32), kOdd);
      const __m256i high = _mm256_blend_epi32(c2[h], _mm256_slli_epi64(c3[h], 32), kOdd);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * h), low);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 + 8 * h), high);
    }
  }
}

#endif

}  // namespace

void random_words([[maybe_unused]] Isa isa, Key key, uint64_t first, size_t groups, uint32_t* out) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512(key, first, groups, out);
  if (isa == Isa::kAvx2) return avx2(key, first, groups, out);
#endif
  baseline(key, first, groups, out);
}

}  // namespace muster::model
