// Engine interface of the loop: buffers by name and shape, and graphs bound to them once (runtime/devices/engine.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "../bundle/manifest.h"
#include "../contract.h"

namespace spc {

// Host view of a buffer. Its address is stable for the engine's lifetime.
struct Array {
  void* data = nullptr;
  Shape shape;
  std::string dtype;

  size_t count() const { return static_cast<size_t>(product(shape)); }
  size_t bytes() const { return count() * item_size(dtype); }
  // Return the data by dtype. Throw Error(kBundle) if the manifest declares another dtype.
  int64_t* ints() const { return dtype == dtype::kInt64 ? static_cast<int64_t*>(data) : refuse(dtype::kInt64); }
  float* floats() const { return dtype == dtype::kFloat32 ? static_cast<float*>(data) : refuse(dtype::kFloat32); }

 private:
  [[noreturn]] std::nullptr_t refuse(const char* expected) const;
};

using Run = std::function<void()>;

// Half-open range from `start` to `stop`: tokens of a text, or rows of a batch.
struct Span {
  int64_t start = 0, stop = 0;
  int64_t size() const { return stop - start; }
  bool operator==(const Span& other) const { return start == other.start && stop == other.stop; }
};

// Throws the Error(kCancelled) of a run that was stopped.
[[noreturn]] void refuse_cancelled();

// Buffers of one session, and its graphs bound to them. Not thread-safe, except `stop`.
class Engine {
 public:
  virtual ~Engine() = default;

  // Return a view that the graphs read and write, too. Exception: for states and links of a device engine it is a copy of
  // the current values.
  virtual Array host_view(const std::string& buffer, const Shape& shape) = 0;
  // Write a state from `values`, in the engine's dtype.
  virtual void write_state(const std::string& buffer, const Shape& shape, const void* values) = 0;
  // Return whether a run may cover a slice of the batch.
  virtual bool supports_batch_slices() const { return false; }
  // Bind a graph to its buffers at these widths and return a function that runs it to its end. logits: bind this optional
  // output. rows: rows of the batch, all by default; links to other graphs, and logits, then have lines for these rows only.
  // The run throws Error(kCancelled) if it was stopped, Error(kEngine) if the library fails.
  virtual Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span> rows = std::nullopt) = 0;
  virtual bool has(const std::string& graph) const = 0;
  // Make the current run, or the next one, throw Error(kCancelled), until `resume`. Thread-safe.
  virtual void stop() = 0;
  virtual void resume() = 0;
};

// Graphs of an engine, opened once and shared by sessions. Thread-safe.
class SharedEngine {
 public:
  virtual ~SharedEngine() = default;
  virtual std::unique_ptr<Engine> open() = 0;
  // Return the number of CPU threads of a graph; nullopt if the library does not report it.
  virtual std::optional<int> threads() const = 0;
};

// Return the graphs of speculative rounds; other graphs are opened at first use. A fused bundle has `verify` in addition to
// `step`, for autoregressive decoding only: opening both would take twice as long.
std::vector<std::string> eager_graphs(const EngineEntry& entry);

// Return whether the graphs support runs over a slice of the batch. Only CPU engines use it.
bool supports_batch_slices(const std::vector<Graph>& graphs);
// Return a tensor's shape in a run over `rows` rows.
Shape shape_for_rows(const Tensor& tensor, const Widths& widths, int64_t rows);
// Return whether a tensor is scratch of a run: it has lines for the run's rows only, shapes of similar size share memory,
// and its content is not valid in a later run at another shape.
bool is_scratch(const Tensor& tensor);
std::set<std::string> scratch_buffers(const std::vector<Graph>& graphs);
// Return the bytes that scratch of about this size shares. A prompt's last chunk has an arbitrary width; separate memory for
// every width would be hundreds of times that of the largest.
size_t scratch_size(size_t bytes);

// Buffer -> the contract's dtype. `dtype_of` throws Error(kBundle) for an unknown buffer.
using Dtypes = std::map<std::string, std::string>;
Dtypes buffer_dtypes(const std::vector<Graph>& graphs);
const std::string& dtype_of(const Dtypes& dtypes, const std::string& buffer);

}  // namespace spc
