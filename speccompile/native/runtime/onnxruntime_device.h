// ONNX Runtime on a GPU: buffers on the device bound by address, CUDA graphs for the shapes that decoding repeats
// (runtime/devices/onnxruntime_device.py).
//
// ONNX Runtime uses its own stream: the engine waits for its uploads before a graph runs, and a run has ended when
// RunWithBinding returns.
#pragma once

#include <memory>
#include <string>

#include "device.h"
#include "engine.h"
#include "onnxruntime_provider.h"
#include "ort.h"

namespace spc {

// Throws Error(kEngine) with the reason if this machine cannot run engines of the manifest's provider: "cuda",
// "nv_tensorrt_rtx". Fast: no graph is opened.
void check_device(const Ort& library, const std::string& provider);

// Open the graphs of an engine of the bundle in `folder` on the first GPU. threads: CPU threads, which launch kernels. Throws
// Error(kEngine) for a missing provider or a graph that it rejects.
std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads);
// The same on a given device, by a given provider.
std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads, std::shared_ptr<Device> device, const Provider& provider);

}  // namespace spc
