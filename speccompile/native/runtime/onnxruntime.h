// ONNX Runtime on a CPU: bindings over preallocated buffers, caches updated in place (runtime/devices/onnxruntime.py).
#pragma once

#include <memory>
#include <string>

#include "engine.h"
#include "ort.h"

namespace spc {

// Open the graphs of an engine of the bundle in `folder` on the CPU. verify: see `shared_session`.
std::shared_ptr<SharedEngine> open_onnxruntime(const Ort& library, const std::string& folder, const EngineEntry& entry, int threads, bool verify);

}  // namespace spc
