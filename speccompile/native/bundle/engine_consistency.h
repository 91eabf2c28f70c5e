// Consistency of an engine with its bundle: its graphs are those of the bundle, but for what an engine may change
// (`_engine` of speccompile/bundle/consistency.py).
#pragma once

#include <vector>

#include "manifest.h"

namespace spc {

// Throws Error(kBundle) naming what differs between the graphs of an engine and those of the bundle, but for the types of caches,
// and the states of TensorRT.
void check_engine(const EngineEntry& engine, const std::vector<Graph>& graphs);

}  // namespace spc
