// Times products with weights beside what bounds them: the memory's bandwidth, and the processor's products a second.
//
//   kernel_roofline FOR_TIMES PATH SECONDS     one line of JSON for every precision and window
//   kernel_roofline FOR_COUNTS PATH            runs each case once, in `measured_call`, whose instructions callgrind counts
//
// PATH is one of the paths of the kernels, or `best`. One thread.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../../speccompile/native/kernels/choose.h"
#include "peaks.h"

namespace {

using namespace speccompile;

constexpr int64_t kDepth = 2048, kColumns = 2048, kBlock = 32;
constexpr int64_t kCountedDepth = 512, kCountedColumns = 64;
constexpr int64_t kColdBytes = int64_t{384} << 20;  // of weights that are read in turn: more than caches hold
constexpr int64_t kWindows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 25, 64};
constexpr int64_t kCountedWindows[] = {1, 5, 25};

// Memory in large pages where there are some. Any byte is a number here but in floats, so what fills it is said.
class Memory {
 public:
  Memory(int64_t bytes, uint8_t value) : bytes_(static_cast<size_t>(bytes + 4096)) {
    all_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (all_ == MAP_FAILED) {
      std::fprintf(stderr, "no memory for %lld bytes\n", static_cast<long long>(bytes));
      std::exit(1);
    }
    madvise(all_, bytes_, MADV_HUGEPAGE);
    std::memset(all_, value, bytes_);
  }
  ~Memory() { munmap(all_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(all_);
  }

 private:
  size_t bytes_;
  void* all_;
};

// Rows of x in every form that a product asks for.
struct Rows {
  int64_t count, depth, padded;
  Memory x, panels, numbers, scales, sums;

  Rows(int64_t rows, int64_t width)
      : count(rows), depth(width), padded(rows > 8 ? (rows + 15) / 16 * 16 : rows), x(rows * width * 4, 0), panels(rows * width * 4, 0),
        numbers(padded * width, 0), scales(padded * (width / 16) * 4, 0), sums(padded * (width / 16) * 4, 0) {
    for (int64_t i = 0; i < rows * width; ++i) x.as<float>()[i] = static_cast<float>(i % 255 - 127) / 127.0f;
  }

  QuantizedRows quantized(const Kernels& kernels, int64_t block) const {
    const QuantizedRows rows{padded, depth, block, numbers.as<int8_t>(), scales.as<float>(), sums.as<float>()};
    kernels.quantize(x.as<float>(), depth, rows, 0, count);
    return rows;
  }

  const float* packed(const Kernels& kernels) const {
    if (count == 1) return x.as<float>();
    kernels.pack(x.as<float>(), count, depth, panels.as<float>());
    return panels.as<float>();
  }
};

// A kind of product: how many bytes a column's depth takes, and how one is computed from weights at a place.
struct Kind {
  const char* name;
  double bytes_each;  // of a weight, scales included
  Peak peak;
  std::function<void(const Kernels&, const Rows&, const uint8_t* weight, const Output&)> compute;
};

// Scales behind the numbers they belong to, so that one place says all of a weight.
template <class T>
const T* behind(const uint8_t* weight, int64_t bytes) {
  return reinterpret_cast<const T*>(weight + bytes);
}

std::vector<Kind> kinds() {
  const auto floats = [](auto member) {
    return [member](const Kernels& k, const Rows& rows, const uint8_t* weight, const Output& out) {
      (k.*member)(FloatProduct{rows.packed(k), weight, rows.depth, out}, 0, tiles(out.columns));
    };
  };
  const auto int8 = [](const Kernels& k, const Rows& rows, const uint8_t* weight, const Output& out) {
    const Int8Product p{rows.quantized(k, rows.depth), weight, behind<float>(weight, rows.depth * out.columns), out};
    k.product_int8(p, 0, tiles(out.columns));
  };
  const auto int4 = [](const Kernels& k, const Rows& rows, const uint8_t* weight, const Output& out) {
    const int64_t numbers = rows.depth * out.columns / 2, blocks = rows.depth / kBlock * out.columns;
    const Int4Product p{rows.quantized(k, kBlock), weight, behind<uint16_t>(weight, numbers), behind<uint8_t>(weight, numbers + 2 * blocks),
                        behind<float>(weight, numbers + 3 * blocks), out};
    k.product_int4(p, 0, tiles(out.columns));
  };
  const auto codes = [](auto member, int64_t bits) {
    return [member, bits](const Kernels& k, const Rows& rows, const uint8_t* weight, const Output& out) {
      const BlockProduct p{rows.quantized(k, kBlock), weight, behind<float>(weight, rows.depth * out.columns * bits / 8), nullptr, bits == 4 ? 8.0f : 128.0f, out};
      (k.*member)(p, 0, tiles(out.columns));
    };
  };
  return {{"float32", 4, Peak::kFloats, floats(&Kernels::product_float32)},
          {"bfloat16", 2, Peak::kFloats, floats(&Kernels::product_bfloat16)},
          {"int8", 1, Peak::kBytes, int8},
          {"int4", 0.5 + 3.0 / kBlock, Peak::kNibbles, int4},
          {"stored8", 1 + 4.0 / kBlock, Peak::kBytes, codes(&Kernels::product_blocks8, 8)},
          {"stored4", 0.5 + 4.0 / kBlock, Peak::kNibbles, codes(&Kernels::product_blocks4, 4)}};
}

int64_t bytes_of(const Kind& kind, int64_t depth, int64_t columns) {
  const auto numbers = static_cast<int64_t>(kind.bytes_each * static_cast<double>(depth * columns));
  return (numbers + 4 * columns + 4095) / 4096 * 4096;
}

const Kernels& path_named(const std::string& name) {
  if (name != "best" && !use_path(name.c_str())) {
    std::fprintf(stderr, "received the path %s, which this processor cannot run; expected one of:", name.c_str());
    for (const Kernels* const* each = runnable_paths(); *each; ++each) std::fprintf(stderr, " %s", (*each)->name);
    std::fputc('\n', stderr);
    std::exit(2);
  }
  return kernels();
}

// Seconds of reading all weights once, as products do that are free.
double seconds_of_reading(const Memory& memory, int64_t bytes) {
  double best = 1e9;
  for (int pass = 0; pass < 5; ++pass) {
    const double start = thread_seconds();
    read_all(memory.as<uint8_t>(), bytes);
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

// Every kind over every window, weights from memory: the median of passes for so many seconds.
void print_times(const Kernels& kernels, double seconds) {
  const Memory weights(kColdBytes, 0x3c), y(64 * kColumns * 4, 0);
  const double bandwidth = static_cast<double>(kColdBytes) / seconds_of_reading(weights, kColdBytes);
  std::printf("{\"path\": \"%s\", \"bytes_per_second\": %.4g}\n", kernels.name, bandwidth);
  for (const Kind& kind : kinds()) {
    const double peak = products_a_second(kernels.name, kind.peak);
    const int64_t each = bytes_of(kind, kDepth, kColumns), count = kColdBytes / each;
    for (const int64_t window : kWindows) {
      const Rows rows(window, kDepth);
      std::vector<double> times;
      int64_t at = 0;
      for (double used = 0; used < seconds || times.size() < 5;) {
        const int64_t together = std::min<int64_t>(count, 16);
        const double start = thread_seconds();
        for (int64_t i = 0; i < together; ++i, at = (at + 1) % count)
          kind.compute(kernels, rows, weights.as<uint8_t>() + at * each, {y.as<float>(), window, kColumns, nullptr});
        times.push_back((thread_seconds() - start) / static_cast<double>(together));
        used += times.back() * static_cast<double>(together);
      }
      std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
      const double products = static_cast<double>(window * kDepth * kColumns);
      std::printf("{\"precision\": \"%s\", \"window\": %lld, \"seconds\": %.5g, \"memory_seconds\": %.5g, \"product_seconds\": %.5g}\n", kind.name,
                  static_cast<long long>(window), times[times.size() / 2], static_cast<double>(each) / bandwidth, products / peak);
      std::fflush(stdout);
    }
  }
}

__attribute__((noinline)) void measured_call(const Kind& kind, const Kernels& kernels, const Rows& rows, const uint8_t* weight, const Output& out) {
  kind.compute(kernels, rows, weight, out);
  asm volatile("" ::: "memory");  // so that this call is not the last thing done, and stays a function
}

void run_counted(const Kernels& kernels) {
  const Memory weights(int64_t{1} << 20, 0x3c), y(64 * kCountedColumns * 4, 0);
  for (const Kind& kind : kinds()) {
    for (const int64_t window : kCountedWindows) {
      const Rows rows(window, kCountedDepth);
      std::printf("{\"precision\": \"%s\", \"window\": %lld, \"bytes\": %lld}\n", kind.name, static_cast<long long>(window),
                  static_cast<long long>(bytes_of(kind, kCountedDepth, kCountedColumns)));
      measured_call(kind, kernels, rows, weights.as<uint8_t>(), {y.as<float>(), window, kCountedColumns, nullptr});
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && !std::strcmp(words[1], "FOR_COUNTS")) {
    run_counted(path_named(words[2]));
  } else if (count == 4 && !std::strcmp(words[1], "FOR_TIMES")) {
    print_times(path_named(words[2]), std::atof(words[3]));
  } else {
    std::fprintf(stderr, "usage: kernel_roofline FOR_TIMES PATH SECONDS | FOR_COUNTS PATH\n");
    return 2;
  }
  return 0;
}
