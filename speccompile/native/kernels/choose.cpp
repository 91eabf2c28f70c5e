#include "choose.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
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
    __builtin_cpu_init();
    [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    [[maybe_unused]] const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                         __builtin_cpu_supports("avx512vnni");
#if defined(SPECCOMPILE_HAS_AMX_INT8)
    add(amx_int8::kKernels, avx512 && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") && may_use_tiles());
#endif
#if defined(SPECCOMPILE_HAS_AVX512_VNNI)
    add(avx512_vnni::kKernels, avx512);
#endif
#if defined(SPECCOMPILE_HAS_AVX_VNNI)
    add(avx_vnni::kKernels, avx2 && __builtin_cpu_supports("avxvnni"));
#endif
#if defined(SPECCOMPILE_HAS_AVX2)
    add(avx2::kKernels, avx2);
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
    const Kernels* asked = named(std::getenv("SPECCOMPILE_KERNELS"));
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
