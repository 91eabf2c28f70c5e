#include "choose.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../contract_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(SPECCOMPILE_HAS_AMX_INT8)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace speccompile {

namespace scalar {
extern const Kernels kKernels;
}
#if defined(SPECCOMPILE_HAS_AVX2)
namespace avx2 {
extern const Kernels kKernels;
}
#endif
#if defined(SPECCOMPILE_HAS_AVX_VNNI)
namespace avx_vnni {
extern const Kernels kKernels;
}
#endif
#if defined(SPECCOMPILE_HAS_AVX512_VNNI)
namespace avx512_vnni {
extern const Kernels kKernels;
}
#endif
#if defined(SPECCOMPILE_HAS_AMX_INT8)
namespace amx_int8 {
extern const Kernels kKernels;
}
#endif
#if defined(SPECCOMPILE_HAS_NEON_DOT)
namespace neon_dot {
extern const Kernels kKernels;
}
#endif

namespace {

#if defined(__x86_64__)
// Return the sets of registers that the system saves, one bit each (XCR0). The processor must have OSXSAVE.
unsigned saved_registers() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool all_set(unsigned flags, std::initializer_list<int> bits) {
  for (const int bit : bits)
    if (!(flags >> bit & 1)) return false;
  return true;
}

// Features as CPUID reports them, and not __builtin_cpu_supports: GCC before 11 and clang before 17 do not know all of these
// by name, and zig's answer is always no.
struct Features {
  bool avx2 = false, avx512 = false, avx_vnni = false, amx_int8 = false;

  Features() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !all_set(c, {12, 27, 28, 29})) return;  // FMA, OSXSAVE, AVX, F16C
    const unsigned saved = saved_registers();
    if (!all_set(saved, {1, 2}) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;  // XMM, YMM
    avx2 = all_set(b, {5});
#if defined(__APPLE__)
    const bool saves_avx512 = true;  // from the first use on
#else
    const bool saves_avx512 = all_set(saved, {5, 6, 7});  // masks, upper halves of ZMM0 to 15, ZMM16 to 31
#endif
    avx512 = avx2 && saves_avx512 && all_set(b, {16, 17, 30, 31}) && all_set(c, {11});  // F, DQ, BW, VL; VNNI
    amx_int8 = avx512 && all_set(d, {24, 25});                                      // its tiles, and products in eight bits
    avx_vnni = avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && all_set(a, {4});
  }
};
#endif

#if defined(SPECCOMPILE_HAS_AMX_INT8)
// Linux lets a process use the tiles' registers when it asks.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

struct Paths {
  const Kernels* found[8] = {};
  int count = 0;

  void add(const Kernels& path, bool runs) {
    if (runs) found[count++] = &path;
  }

  Paths() {
#if defined(__x86_64__)
    [[maybe_unused]] const Features has;
#if defined(SPECCOMPILE_HAS_AMX_INT8)
    add(amx_int8::kKernels, has.amx_int8 && may_use_tiles());
#endif
#if defined(SPECCOMPILE_HAS_AVX512_VNNI)
    add(avx512_vnni::kKernels, has.avx512);
#endif
#if defined(SPECCOMPILE_HAS_AVX_VNNI)
    add(avx_vnni::kKernels, has.avx_vnni);
#endif
#if defined(SPECCOMPILE_HAS_AVX2)
    add(avx2::kKernels, has.avx2);
#endif
#endif
#if defined(SPECCOMPILE_HAS_NEON_DOT) && defined(__linux__)
    add(neon_dot::kKernels, getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
#elif defined(SPECCOMPILE_HAS_NEON_DOT)
    add(neon_dot::kKernels, true);  // every Arm processor of Apple's has dot products
#endif
    add(scalar::kKernels, true);
  }
};

const Paths& paths() {
  static const Paths found;
  return found;
}

const Kernels* named(const char* name) {
  for (int i = 0; name && i < paths().count; ++i)
    if (std::strcmp(paths().found[i]->name, name) == 0) return paths().found[i];
  return nullptr;
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> path = [] {
    const Kernels* asked = named(std::getenv(spc::kKernelsVariable));
    return asked ? asked : paths().found[0];
  }();
  return path;
}

}  // namespace

const Kernels* const* runnable_paths() { return paths().found; }

const Kernels& kernels() { return *chosen().load(std::memory_order_relaxed); }

bool use_path(const char* name) {
  const Kernels* path = named(name);
  if (path) chosen().store(path, std::memory_order_relaxed);
  return path != nullptr;
}

}  // namespace speccompile
