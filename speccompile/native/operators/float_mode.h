// Rounding mode of a thread. Its host may have changed it, itself or by a library that was linked with -ffast-math.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace speccompile {

// While it lives, results are rounded to nearest, small numbers stay what they are, and float16 is IEEE's.
class FloatMode {
 public:
  FloatMode() {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    if (before_ & kRounding) _mm_setcsr(before_ & ~kRounding);
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ & kRounding) asm volatile("msr fpcr, %0" ::"r"(before_ & ~kRounding));
#endif
  }
  ~FloatMode() {
#if defined(__x86_64__)
    if (before_ & kRounding) _mm_setcsr(before_);
#elif defined(__aarch64__)
    if (before_ & kRounding) asm volatile("msr fpcr, %0" ::"r"(before_));
#endif
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kRounding = 0xe040;  // flush to zero, rounding control, denormals are zeros
  unsigned before_ = 0;
#elif defined(__aarch64__)
  static constexpr uint64_t kRounding = 0x7c80000;  // another format of 16 bits, default NaN, flush to zero, rounding mode
  uint64_t before_ = 0;
#endif
};

}  // namespace speccompile
