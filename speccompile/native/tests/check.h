// Shared by the tests: checks, memory that ends where a buffer ends, and numbers that show wrong sums.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>

#include "../kernels/choose.h"

// Ends the test where a thing does not hold. What follows the condition says where, as printf takes it.
#define CHECK(holds, ...)                                             \
  do {                                                                \
    if (!(holds)) {                                                   \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #holds); \
      std::fprintf(stderr, __VA_ARGS__);                              \
      std::fputc('\n', stderr);                                       \
      std::exit(1);                                                   \
    }                                                                 \
  } while (false)

namespace speccompile {

// Position of a buffer: at the start of its memory, on a cache line, or at its end, wherever that begins. Before and after
// that memory nothing may be read or written: the processor sees what no sanitizer does, in tiles and masked vectors too.
// (QEMU 7.2 takes a masked load of AVX for a whole one, and fails here.)
enum class Place { kStart, kEnd };

template <class T>
class Buffer {
 public:
  Buffer(int64_t count, Place place) : count(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), bytes = static_cast<size_t>(count) * sizeof(T);
    const size_t room = (bytes + page - 1) / page * page;
    size_ = room + 2 * page;
    all_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0));
    CHECK(all_ != MAP_FAILED, "no memory");
    CHECK(!room || mprotect(all_ + page, room, PROT_READ | PROT_WRITE) == 0, "no memory");
    data = reinterpret_cast<T*>(all_ + page + (place == Place::kEnd ? room - bytes : 0));
    std::memset(static_cast<void*>(data), 0x7f, bytes);  // of floats: 3.4e38, which is easily told from zero
  }
  ~Buffer() { munmap(all_, size_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T& operator[](int64_t i) { return data[i]; }
  const T& operator[](int64_t i) const { return data[i]; }

  template <class F>
  void fill(F make) {
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(make());
  }

  const int64_t count;
  T* data;

 private:
  size_t size_;
  char* all_;
};

// Numbers without any order, the same ones every time: splitmix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int64_t integer(int64_t first, int64_t last) { return first + static_cast<int64_t>(bits() % static_cast<uint64_t>(last - first + 1)); }
  float number() { return static_cast<float>(integer(-(1 << 24), 1 << 24)) * 0x1p-23f; }  // -2 to 2
  // Now and then what floats end with.
  float any() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kEnds[] = {0.0f, -0.0f, 1e-45f, -1e-38f, 1e-30f, 1e38f, -3.4e38f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    return integer(0, 99) ? number() : kEnds[integer(0, 9)];
  }
  // In one row of three alone: one of them makes a whole row of sums what is no number.
  float any_of_row(int64_t row) { return row % 3 == 1 ? any() : number(); }

 private:
  uint64_t state_;
};

// f(first, last) over parts of [0, count), as threads would be given them, the last part first.
template <class F>
void in_parts(Random& random, int64_t count, F f) {
  for (int64_t last = count; last > 0;) {
    const int64_t first = random.integer(0, 1) ? random.integer(0, last - 1) : 0;
    f(first, last);
    last = first;
  }
}

// Return whether two numbers have the same bits; a NaN equals every NaN.
inline bool same(float one, float other) {
  return std::memcmp(&one, &other, sizeof one) == 0 || (std::isnan(one) && std::isnan(other));
}

inline void check_same(const Buffer<float>& found, const Buffer<float>& expected, const char* path, const std::string& what) {
  for (int64_t i = 0; i < found.count; ++i)
    CHECK(same(found[i], expected[i]), "%s, %s: number %lld is %a, expected %a", what.c_str(), path, static_cast<long long>(i),
          static_cast<double>(found[i]), static_cast<double>(expected[i]));
}

// f(kernels, where its buffers should lie), for all that can run.
template <class F>
void on_every_path(F f) {
  for (const Kernels* const* path = runnable_paths(); *path; ++path)
    for (const Place place : {Place::kStart, Place::kEnd}) f(**path, place);
}

inline std::string sizes(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : " x ") + std::to_string(number);
  return text;
}

}  // namespace speccompile
