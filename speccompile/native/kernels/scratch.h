// Memory that a kernel needs for a while. Not std::vector, whose code would be compiled for one processor and shared.
#pragma once

#include <cstdlib>

#include "kernels.h"
#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

// `count` elements that start at a cache line; data is null when there is no memory.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    const size_t line = 64, size = (static_cast<size_t>(count) * sizeof(T) + line - 1) / line * line;
    data = static_cast<T*>(std::aligned_alloc(line, size ? size : line));
  }
  ~Scratch() { std::free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data;
};

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
