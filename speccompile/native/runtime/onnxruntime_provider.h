// What runs graphs on a device for ONNX Runtime, and a graph that one of them has taken.
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

// How ONNX Runtime calls what runs graphs on a device.
struct Provider {
  std::string name;
  std::string plugin;     // the file of the library that brings it, "" for one that is compiled in
  std::string variable;   // of the environment: names that library where it does not lie beside ONNX Runtime
  std::string graph_key;  // the run option that numbers CUDA graphs
  std::string memory;     // the kind of device that its buffers lie on
  std::string install;    // the hint for where it is missing
};

// That of the manifest's word: "cuda", "nv_tensorrt_rtx". Throws Error(kEngine) for another one.
const Provider& find_provider(const std::string& word);
// Throws Error(kEngine) when this ONNX Runtime does not have a provider. Quick: nothing is loaded.
void check_provider(const Ort& library, const Provider& provider);

// Whether a graph's runs are captured as CUDA graphs, and the numbers of those.
class CudaGraphState {
 public:
  explicit CudaGraphState(std::string file) : file_(std::move(file)) {}
  bool allowed() const { return allowed_; }
  // 0 is ONNX Runtime's own.
  int next() { return ++last_; }
  // From now on the graph runs without, which is told.
  void refuse(const std::string& why);

 private:
  const std::string file_;
  bool allowed_ = true;
  int last_ = 0;
};

// CUDA graphs of a graph in an engine. ONNX Runtime lets go of none before the session ends.
constexpr int kMaxCudaGraphs = 8;

// Which of an engine's bindings run as CUDA graphs.
//
// One is played back by its number whatever is bound, so each binding has a number of its own. ONNX Runtime runs a graph
// several times until it is captured, which changes nothing: until the host moves `length`, a round writes the same rows to
// the same places.
class CudaGraphs {
 public:
  static constexpr int kNone = -1;

  // Runs a binding once by `run(number)`, which throws OrtRefusal; check_stopped: throws where that is because somebody wanted
  // it to end. Throws Error(kEngine) for what cannot run without CUDA graphs either.
  void run(CudaGraphState& graph, const Binding& binding, const std::function<void(int number)>& run,
           const std::function<void()>& check_stopped);

 private:
  RepeatDetector repeats_;
  std::map<const Binding*, int> numbers_;  // 0 for none
  std::map<std::string, int> n_used_;       // graph -> numbers that its bindings have had
};

// A graph in ONNX Runtime. For one thread at a time.
class DeviceSession {
 public:
  // Throws Error(kEngine) for a provider that cannot be loaded or a graph that it does not take.
  DeviceSession(const Ort& library, Provider provider, const std::string& folder, const std::string& file, int threads);

  // The binding in ONNX Runtime's own form. Throws Error(kEngine) for a tensor that the graph does not have.
  std::shared_ptr<OrtIoBinding> bind(const Binding& binding);
  // Throws OrtRefusal.
  void run(const OrtIoBinding* bound, const OrtRunOptions* options);

  CudaGraphState capturing;

 private:
  SharedSession open(const std::string& path, int threads, bool capture);
  // Warns of nodes that ONNX Runtime left to another provider: their inputs and outputs cross in every round.
  void warn_fallback_nodes() const;

  const Ort& library_;
  const Provider provider_;
  const std::string name_;  // of the file
  SharedSession session_;
};

}  // namespace spc
