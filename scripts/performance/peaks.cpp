#include "peaks.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t kTurns = 4'000'000;

// Products a second of a loop that makes so many a turn.
template <class Loop>
double best_rate(Loop loop, double products) {
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const double start = thread_seconds();
    loop(kTurns);
    best = std::max(best, products * static_cast<double>(kTurns) / (thread_seconds() - start));
  }
  return best;
}

// Twelve sums that depend on nothing but themselves: more than any processor has multipliers times their latency. The
// instruction is written out, so that no compiler finds a shorter way.
#define SPC_TWELVE(line) line("0") line("1") line("2") line("3") line("4") line("5") line("6") line("7") line("8") line("9") line("10") line("11")

#if defined(__x86_64__)
#define SPC_FMA512(i) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" i "\n"
#define SPC_DOT512(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" i "\n"
#define SPC_FMA256(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" i "\n"
#define SPC_DOT256(i) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" i "\n"
// AVX2 alone multiplies bytes into words, which must be added up by another instruction.
#define SPC_PAIRS256(i) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\nvpaddw %%ymm13, %%ymm" i ", %%ymm" i "\n"

#define SPC_LOOP(name, lines)                                                                                             \
  void name(int64_t turns) {                                                                                              \
    asm volatile("vzeroall\n1:\n" lines "dec %0\njnz 1b\nvzeroupper\n"                                                     \
                 : "+r"(turns)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",     \
                   "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");                                                     \
  }

SPC_LOOP(fma512, SPC_TWELVE(SPC_FMA512))
SPC_LOOP(dot512, SPC_TWELVE(SPC_DOT512))
SPC_LOOP(fma256, SPC_TWELVE(SPC_FMA256))
SPC_LOOP(dot256, SPC_TWELVE(SPC_DOT256))
SPC_LOOP(pairs256, SPC_TWELVE(SPC_PAIRS256))
#endif

// Sums of floats one by one: what is left where a path has no instruction of its own.
void scalar_fma(int64_t turns) {
  float sums[8] = {};
  for (int64_t i = 0; i < turns; ++i) {
    for (float& each : sums) {
      each += each * 0.5f;
      asm volatile("" : "+m"(each));
    }
  }
}

}  // namespace

double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double products_a_second(const char* path, Peak peak) {
#if defined(__x86_64__)
  const bool is_float = peak == Peak::kFloats;
  if (!std::strncmp(path, "avx512", 6) || !std::strncmp(path, "amx", 3)) return is_float ? best_rate(fma512, 12 * 16) : best_rate(dot512, 12 * 64);
  if (!std::strcmp(path, "avx_vnni")) return is_float ? best_rate(fma256, 12 * 8) : best_rate(dot256, 12 * 32);
  // Whole bytes are multiplied as two halves, each exact in words.
  if (!std::strcmp(path, "avx2")) return is_float ? best_rate(fma256, 12 * 8) : best_rate(pairs256, peak == Peak::kBytes ? 12 * 16 : 12 * 32);
#else
  static_cast<void>(peak);
#endif
  static_cast<void>(path);
  return best_rate(scalar_fma, 8);
}

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
void read_all(const uint8_t* from, int64_t bytes) {
#if defined(__x86_64__)
  __m256i sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 128) {
    for (int j = 0; j < 4; ++j)
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 32 * j)));
    _mm_prefetch(reinterpret_cast<const char*>(from + i) + 4096, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + i) + 4096 + 64, _MM_HINT_T0);
  }
  asm volatile("" ::"x"(_mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]))));
#else
  uint64_t sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 32)
    for (int j = 0; j < 4; ++j) {
      uint64_t word;
      std::memcpy(&word, from + i + 8 * j, sizeof word);
      sums[j] ^= word;
    }
  asm volatile("" ::"r"(sums[0] ^ sums[1] ^ sums[2] ^ sums[3]));
#endif
}
