// Bandwidth of the memory, which bounds decoding (speccompile/measure/bench/roofline.py).
#pragma once

#include "../json.h"

namespace spc::cli {

// Measure the bytes per second at which threads read a buffer beyond the processor's caches, each its own part: the best of
// several passes. Return the object of `bench --json`.
Json measure_bandwidth(int threads);

}  // namespace spc::cli
