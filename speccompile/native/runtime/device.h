// What engines on a GPU have in common: buffers on the device, mirrors on the host, copies around every run
// (runtime/device.py).
//
// States, and what one graph hands to the next, live on the device and never cross. All else has a pinned mirror on the
// host, which the loop reads and writes: it is uploaded before a graph runs, and what the graph wrote is downloaded behind
// it, on one stream.
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

// A GPU, and the one stream on which everything of an engine happens, in order. All of it throws Error(kEngine).
class Device {
 public:
  virtual ~Device() = default;

  // Zeroed memory on the device, `bytes` of it. It is freed with the last who has it.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  // Zeroed memory of the host that the device copies from and to by itself.
  virtual std::shared_ptr<void> pinned(size_t bytes) = 0;
  // Zero memory on the device, when the stream gets there.
  virtual void zero(void* device, size_t bytes) = 0;
  // Copy pinned memory to the device, when the stream gets there.
  virtual void upload(const void* host, void* device, size_t bytes) = 0;
  // Copy from the device, when the stream gets there.
  virtual void download(const void* device, void* host, size_t bytes) = 0;
  // Copy from one place on the device to another, when the stream gets there.
  virtual void copy(const void* from, void* to, size_t bytes) = 0;
  // Wait for everything on the stream. Throws for what failed there meanwhile.
  virtual void synchronize() = 0;
  virtual const std::string& name() const = 0;
  virtual const std::string& compute_capability() const = 0;  // "8.9"
};

// A tensor of a graph at its concrete shape, and where on the device it lies.
struct BoundTensor {
  const Tensor* tensor;
  Shape shape;
  void* address;
};

// A pinned mirror, and where on the device it goes or comes from.
struct Transfer {
  Array host;
  void* address;
};

// What a graph wrote beside what it read, and where on the device it is read the next time.
struct DeviceCopy {
  const void* from;
  void* to;
  size_t bytes;
};

// A graph at concrete shapes. It never moves while its engine lives.
struct Binding {
  std::string graph;
  std::vector<BoundTensor> inputs, outputs;
  std::vector<Transfer> uploads, downloads;
  std::vector<DeviceCopy> copies;

  // How messages name it.
  std::string widths() const;
};

// All of an engine but `prepare`, which the library that runs the graphs gives.
class DeviceEngine : public Engine {
 public:
  Array host_view(const std::string& buffer, const Shape& shape) override;
  void write_state(const std::string& buffer, const Shape& shape, const void* values) override;
  Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span> rows = std::nullopt) override;
  bool has(const std::string& graph) const override { return entry_.has(graph); }
  void stop() override { stopped_ = true; }
  void resume() override { stopped_ = false; }
  // Whether `array` asks nothing of the device.
  bool has_mirror(const std::string& buffer, const Shape& shape) const {
    return mirrors_.count(place(buffer, shape)) && !device_only_.count(buffer);
  }
  // Makes all buffers what they were at first. What was bound stays so.
  void clear();

 protected:
  DeviceEngine(std::shared_ptr<Device> device, EngineEntry entry);

  // What runs a graph at these shapes, copies included, to its end.
  virtual Run prepare(const Binding& binding) = 0;
  // Puts the copies of a binding on the stream: those before its run, and those behind it. Nothing waits.
  void upload(const Binding& binding);
  void download(const Binding& binding);
  bool is_stopped() const { return stopped_; }
  // Throws Error(kCancelled) when the engine was stopped.
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
  // A copy of what stays on the device.
  Array snapshot(const std::string& buffer, const Shape& shape);
  // Fills an index input with 0, 1, 2, ..; nothing writes it again.
  void fill_iota(const std::string& buffer, const Shape& shape, void* address);
  size_t size(const std::string& buffer, const Shape& shape) const;
  size_t allocated(const std::string& buffer, const Shape& shape) const;
  BufferKey place(const std::string& buffer, const Shape& shape) const;

  const Dtypes dtypes_;
  const std::set<std::string> scratch_;
  std::set<std::string> device_only_;  // buffers that never cross
  std::set<BufferKey> indices_;
  std::map<BufferKey, Allocation> memory_, mirrors_;
  std::map<BufferKey, std::vector<char>> snapshots_;
  std::map<std::tuple<std::string, std::vector<Shape>, bool>, std::pair<std::unique_ptr<const Binding>, Run>> runs_;
  std::atomic<bool> stopped_{false};
};

// Tells which shapes are worth a CUDA graph: those at which a graph runs twice in a row.
//
// A round of decoding runs at the same shapes again and again; the rest of a prompt, whose width is its own, does not.
class RepeatDetector {
 public:
  // Whether this graph ran at these very shapes the last time. To be asked once before every run.
  bool again(const Binding& binding);

 private:
  std::map<std::string, const Binding*> last_;
};

}  // namespace spc
