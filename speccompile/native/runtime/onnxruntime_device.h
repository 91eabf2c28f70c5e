// ONNX Runtime on a GPU: buffers on the device bound by address, CUDA graphs for the shapes that decoding repeats
// (runtime/onnxruntime_device.py).
//
// Its copies are not ours: uploads are waited for before a graph runs, on whatever stream ONNX Runtime runs it, and a run
// has ended when RunWithBinding returns.
#pragma once

#include <memory>
#include <string>

#include "device.h"
#include "engine.h"
#include "onnxruntime_provider.h"
#include "ort.h"

namespace spc {

// Throws Error(kEngine) saying why this machine cannot run engines of the manifest's provider: "cuda", "nv_tensorrt_rtx".
// Quick: no graph is opened.
void check_device(const Ort& library, const std::string& provider);

// The graphs of an engine of the bundle in `folder`, for the first GPU. threads: of the processor; they launch kernels. Throws
// Error(kEngine) for a provider that is missing or a graph that it does not take.
std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads);
// The same on a device, by a provider.
std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads, std::shared_ptr<Device> device, const Provider& provider);

}  // namespace spc
