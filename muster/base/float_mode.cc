#include "muster/base/float_mode.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace muster {

#if defined(__SSE2__)

// FTZ: results that are subnormal become zero. DAZ: operands that are count as zero.
constexpr unsigned kFlush = 0x8040;

void flush_subnormals() { _mm_setcsr(_mm_getcsr() | kFlush); }
bool flushes_subnormals() { return (_mm_getcsr() & kFlush) == kFlush; }
static void keep_subnormals() { _mm_setcsr(_mm_getcsr() & ~kFlush); }

#elif defined(__aarch64__)

constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ: results and operands

static uint64_t control() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void flush_subnormals() { asm volatile("msr fpcr, %0" ::"r"(control() | kFlush)); }
bool flushes_subnormals() { return (control() & kFlush) != 0; }
static void keep_subnormals() { asm volatile("msr fpcr, %0" ::"r"(control() & ~kFlush)); }

#else
#error "flush_subnormals() is not known for this processor"
#endif

FlushSubnormals::FlushSubnormals() : before_(flushes_subnormals()) { flush_subnormals(); }
FlushSubnormals::~FlushSubnormals() {
  if (!before_) keep_subnormals();
}

}  // namespace muster
