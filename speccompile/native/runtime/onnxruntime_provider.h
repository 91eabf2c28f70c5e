// Execution providers of ONNX Runtime for devices, and sessions of graphs on them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "device.h"
#include "ort.h"
#include "sessions.h"

namespace spc {

// Execution provider for a device.
struct Provider {
  std::string name;
  std::string plugin;     // the file of the library that brings it, "" for one that is compiled in
  std::string variable;   // of the environment: names that library where it does not lie beside ONNX Runtime
  std::string graph_key;  // the run option that numbers CUDA graphs
  std::string memory;     // the kind of device that its buffers lie on
  std::string install;    // the hint for where it is missing
};

// Return the provider of the manifest's word: "cuda", "nv_tensorrt_rtx". Throws Error(kEngine) for another one.
const Provider& find_provider(const std::string& word);
// Throws Error(kEngine) if this ONNX Runtime lacks a provider. Fast: nothing is loaded.
void check_provider(const Ort& library, const Provider& provider);

// State of CUDA graph capture for a graph: whether it is allowed, and the last number used.
class CudaGraphState {
 public:
  explicit CudaGraphState(std::string file) : file_(std::move(file)) {}
  bool allowed() const { return allowed_; }
  // Return a new number; 0 is reserved by ONNX Runtime.
  int next() { return ++last_; }
  // Disable capture for this graph, and log the reason.
  void refuse(const std::string& why);

 private:
  const std::string file_;
  bool allowed_ = true;
  int last_ = 0;
};

// Maximum number of CUDA graphs per graph of an engine. ONNX Runtime releases none before the session ends.
constexpr int kMaxCudaGraphs = 8;

// CUDA graphs of an engine's bindings.
//
// ONNX Runtime replays a CUDA graph by number, whatever is bound, so each binding has a separate number. It runs a graph
// several times before the capture. That is harmless: until the host advances `length`, a round writes the same cache
// entries to the same places.
class CudaGraphs {
 public:
  static constexpr int kNone = -1;

  // Run a binding once by `run(number)`, which throws OrtError. check_stopped: throws if the run failed because the engine was
  // stopped. Throws Error(kEngine) for a run that fails without CUDA graphs, too.
  void run(CudaGraphState& graph, const Binding& binding, const std::function<void(int number)>& run,
           const std::function<void()>& check_stopped);

 private:
  RepeatDetector repeats_;
  std::map<const Binding*, int> numbers_;  // 0 for none
  std::map<std::string, int> n_used_;       // graph -> count of numbers that its bindings use
};

// Session of a graph on a device in ONNX Runtime. Not thread-safe.
class DeviceSession {
 public:
  // Throws Error(kEngine) for a provider that cannot be loaded or a graph that it rejects.
  DeviceSession(const Ort& library, Provider provider, const std::string& folder, const std::string& file, int threads);

  // Return the binding as an OrtIoBinding. Throws Error(kEngine) for a tensor that the graph does not have.
  std::shared_ptr<OrtIoBinding> bind(const Binding& binding);
  // Throws OrtError.
  void run(const OrtIoBinding* bound, const OrtRunOptions* options);

  CudaGraphState capturing;

 private:
  SharedSession open(const std::string& path, int threads, bool capture);
  // Warn of nodes that ONNX Runtime assigned to another provider: their inputs and outputs are copied in every round.
  void warn_fallback_nodes() const;

  const Ort& library_;
  const Provider provider_;
  const std::string name_;  // of the file
  SharedSession session_;
};

}  // namespace spc
