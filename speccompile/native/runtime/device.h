// Common base of GPU engines: buffers on the device, mirrors on the host, copies around every run
// (runtime/devices/device.py).
//
// States and links between graphs stay on the device. Every other buffer has a pinned mirror on the host, which the loop
// reads and writes. Inputs are uploaded before a graph runs and outputs downloaded after it, on one stream.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.h"

namespace spc {

// GPU with the single stream on which all work of an engine happens in order. All functions throw Error(kEngine).
class Device {
 public:
  virtual ~Device() = default;

  // Allocate `bytes` of zeroed device memory, freed with its last owner.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  // Allocate zeroed pinned host memory, which the device copies directly.
  virtual std::shared_ptr<void> pinned(size_t bytes) = 0;
  // Zero device memory, in stream order.
  virtual void zero(void* device, size_t bytes) = 0;
  // Copy pinned memory to the device, in stream order.
  virtual void upload(const void* host, void* device, size_t bytes) = 0;
  // Copy from the device to pinned memory, in stream order.
  virtual void download(const void* device, void* host, size_t bytes) = 0;
  // Copy within the device, in stream order.
  virtual void copy(const void* from, void* to, size_t bytes) = 0;
  // Wait for all work on the stream. Throws the errors of this work.
  virtual void synchronize() = 0;
  virtual const std::string& name() const = 0;
  virtual const std::string& compute_capability() const = 0;  // "8.9"
};

// Tensor of a graph at a concrete shape, and its device address.
struct BoundTensor {
  const Tensor* tensor;
  Shape shape;
  void* address;
};

// Pinned mirror, and its device address.
struct Transfer {
  Array host;
  void* address;
};

// Copy, after a run, of an output to the buffer that the next run reads.
struct DeviceCopy {
  const void* from;
  void* to;
  size_t bytes;
};

// Graph at concrete shapes. Its address is stable for the engine's lifetime.
struct Binding {
  std::string graph;
  std::vector<BoundTensor> inputs, outputs;
  std::vector<Transfer> uploads, downloads;
  std::vector<DeviceCopy> copies;

  // Return the graph's name and the shapes of its dynamic inputs, for messages.
  std::string widths() const;
};

// Engine without `prepare`, which a subclass per graph library implements.
class DeviceEngine : public Engine {
 public:
  Array host_view(const std::string& buffer, const Shape& shape) override;
  void write_state(const std::string& buffer, const Shape& shape, const void* values) override;
  Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span> rows = std::nullopt) override;
  bool has(const std::string& graph) const override { return entry_.has(graph); }
  void stop() override { stopped_ = true; }
  void resume() override { stopped_ = false; }
  // Return whether `host_view` needs no device call.
  bool has_mirror(const std::string& buffer, const Shape& shape) const {
    return mirrors_.count(key_of(buffer, shape)) && !device_only_.count(buffer);
  }
  // Reset all buffers to their initial values. Bindings stay valid.
  void clear();

 protected:
  DeviceEngine(std::shared_ptr<Device> device, EngineEntry entry);

  // Return the function that runs a graph at these shapes to its end, copies included.
  virtual Run prepare(const Binding& binding) = 0;
  // Enqueue the copies before or after the run of a binding, without waiting.
  void upload(const Binding& binding);
  void download(const Binding& binding);
  bool is_stopped() const { return stopped_; }
  // Throws Error(kCancelled) if the engine was stopped.
  void check_stopped() const;

  const std::shared_ptr<Device> device_;
  const EngineEntry entry_;

 private:
  using BufferKey = std::pair<std::string, Shape>;  // a buffer at a shape; of scratch, at the bytes that several shapes share
  struct Allocation {
    std::shared_ptr<void> memory;
    size_t bytes;
  };

  Binding binding(const Graph& graph, const Widths& widths, bool logits);
  void* on_device(const std::string& buffer, const Shape& shape);
  Array mirror(const std::string& buffer, const Shape& shape);
  // Return a copy of a buffer that stays on the device.
  Array snapshot(const std::string& buffer, const Shape& shape);
  // Fill an index input with 0, 1, 2, .., once.
  void fill_iota(const std::string& buffer, const Shape& shape, void* address);
  size_t size(const std::string& buffer, const Shape& shape) const;
  size_t allocated_bytes(const std::string& buffer, const Shape& shape) const;
  BufferKey key_of(const std::string& buffer, const Shape& shape) const;

  const Dtypes dtypes_;
  const std::set<std::string> scratch_;
  std::set<std::string> device_only_;  // buffers without a host mirror
  std::set<BufferKey> indices_;
  std::map<BufferKey, Allocation> memory_, mirrors_;
  std::map<BufferKey, std::vector<char>> snapshots_;
  std::map<std::tuple<std::string, std::vector<Shape>, bool>, std::pair<std::unique_ptr<const Binding>, Run>> runs_;
  std::atomic<bool> stopped_{false};
};

// Detector of shapes that are worth a CUDA graph: those at which a graph runs twice in a row.
//
// Decoding rounds repeat their shapes; the last chunk of a prompt, whose width is arbitrary, does not.
class RepeatDetector {
 public:
  // Return whether the graph's last run had the same shapes. Call it once before every run.
  bool again(const Binding& binding);

 private:
  std::map<std::string, const Binding*> last_;
};

}  // namespace spc
