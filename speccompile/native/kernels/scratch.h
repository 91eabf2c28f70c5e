// Memory that a kernel needs for a while. Not std::vector, whose code would be compiled for one processor and shared.
#pragma once

#include <cstdlib>

#include "kernels.h"
#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Memory of the caller's stack, for what is small: asking the system for it takes as long as attention over a short text.
struct Nearby {
  alignas(64) char bytes[32 << 10];
  size_t used = 0;
};

// `count` elements that start at a cache line; data is null when there is no memory. Those that fit lie in `nearby`, which outlives
// them.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count, Nearby* nearby = nullptr) {
    const size_t line = 64, given = (static_cast<size_t>(count) * sizeof(T) + line - 1) / line * line, size = given ? given : line;
    is_nearby_ = nearby && size <= sizeof nearby->bytes - nearby->used;
    data = static_cast<T*>(is_nearby_ ? nearby->bytes + nearby->used : std::aligned_alloc(line, size));
    if (is_nearby_) nearby->used += size;
  }
  ~Scratch() {
    if (!is_nearby_) std::free(data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data;

 private:
  bool is_nearby_;
};

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
