// What the loop needs of an engine: buffers by name and shape, and graphs bound to them once (runtime/engine.py).
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

// A host view of a buffer. It never moves while its engine lives.
struct Array {
  void* data = nullptr;
  Shape shape;
  std::string dtype;

  size_t count() const { return static_cast<size_t>(product(shape)); }
  size_t bytes() const { return count() * item_size(dtype); }
  // Throw Error(kBundle) where the manifest says that it holds something else.
  int64_t* ints() const { return dtype == dtype::kInt64 ? static_cast<int64_t*>(data) : refuse(dtype::kInt64); }
  float* floats() const { return dtype == dtype::kFloat32 ? static_cast<float*>(data) : refuse(dtype::kFloat32); }

 private:
  [[noreturn]] std::nullptr_t refuse(const char* expected) const;
};

using Run = std::function<void()>;

// From `start` to before `stop`: tokens of a text, or rows of a batch.
struct Span {
  int64_t start = 0, stop = 0;
  int64_t size() const { return stop - start; }
  bool operator==(const Span& other) const { return start == other.start && stop == other.stop; }
};

// Throws the Error(kCancelled) of a run that was stopped.
[[noreturn]] void refuse_cancelled();

// The buffers of one session, and its graphs bound to them. For one thread at a time, but `stop`.
class Engine {
 public:
  virtual ~Engine() = default;

  // What is written here the graphs read, and the other way round. States and links of an engine on a device are the
  // exception: what is returned is a copy of the moment.
  virtual Array host_view(const std::string& buffer, const Shape& shape) = 0;
  // Write a state, whose numbers lie at `values` in the dtype that it has here.
  virtual void write_state(const std::string& buffer, const Shape& shape, const void* values) = 0;
  // Whether a run may be over some rows of the batch alone.
  virtual bool supports_batch_slices() const { return false; }
  // Bind a graph to its buffers at these widths and return what runs it, to its end. logits: bind that optional output.
  // rows: of the batch, by default all; what the graph hands on to another one, and logits, have the lines of these alone.
  // The run throws Error(kCancelled) when it was stopped, Error(kEngine) when the library fails.
  virtual Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span> rows = std::nullopt) = 0;
  virtual bool has(const std::string& graph) const = 0;
  // From any thread: the run under way, or the next one, throws Error(kCancelled). Until `resume`.
  virtual void stop() = 0;
  virtual void resume() = 0;
};

// An engine's graphs, opened once: what sessions share. For any thread.
class SharedEngine {
 public:
  virtual ~SharedEngine() = default;
  virtual std::unique_ptr<Engine> open() = 0;
  // Threads of the processor that a graph runs on; none where the library knows of none.
  virtual std::optional<int> threads() const = 0;
};

// The graphs that speculative rounds run; the others wait for their first use. A fused bundle has `verify` beside `step`, for
// autoregressive decoding alone: opening both takes twice as long.
std::vector<std::string> eager_graphs(const EngineEntry& entry);

// Whether graphs have lines for the rows of a run. Only a processor's engine makes use of it.
bool supports_batch_slices(const std::vector<Graph>& graphs);
// A tensor's shape where a run is over so many rows.
Shape shape_for_rows(const Tensor& tensor, const Widths& widths, int64_t rows);
// Whether it is scratch of a run: a run over some rows has the lines of these and no more, shapes of about one size share
// memory, and nobody finds there what an earlier run wrote at another shape.
bool is_scratch(const Tensor& tensor);
std::set<std::string> scratch_buffers(const std::vector<Graph>& graphs);
// As many bytes as scratch of about this size shares. A prompt's last part has a width of its own; memory for each width would be
// hundreds of times that of the largest.
size_t scratch_size(size_t bytes);

// Buffer -> the contract's dtype. Of what is not there `dtype_of` throws Error(kBundle).
using Dtypes = std::map<std::string, std::string>;
Dtypes buffer_dtypes(const std::vector<Graph>& graphs);
const std::string& dtype_of(const Dtypes& dtypes, const std::string& buffer);

}  // namespace spc
