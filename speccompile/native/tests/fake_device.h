// A GPU over the host's memory. It is as strict as CUDA: work on its stream is done when the host waits for it, and not
// before; memory of others is not copied; its own memory is not zeroed.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../errors.h"
#include "../runtime/device.h"
#include "check.h"

// Allocations and the one stream of a device.
struct FakeMachine {
  std::map<const char*, size_t> device, pinned;
  std::deque<std::function<void()>> stream;
  std::vector<std::string> calls;

  void* give(std::map<const char*, size_t>& memory, size_t bytes) {
    char* made = static_cast<char*>(std::malloc(bytes + 1));
    std::memset(made, 0xa5, bytes + 1);
    memory[made] = bytes;
    return made;
  }

  static void take(std::map<const char*, size_t>& memory, void* given) {
    CHECK(memory.erase(static_cast<char*>(given)) == 1, "freed what is not there");
    std::free(given);
  }

  static bool has(const std::map<const char*, size_t>& memory, const void* from, size_t bytes) {
    const char* start = static_cast<const char*>(from);
    auto place = memory.upper_bound(start);
    if (place == memory.begin()) return false;
    --place;
    return start + bytes <= place->first + place->second;
  }

  void copy(void* to, const void* from, size_t bytes) {
    stream.push_back([=] { std::memcpy(to, from, bytes); });
  }

  void wait() {
    for (; !stream.empty(); stream.pop_front()) stream.front()();
  }
};

// A device that records its calls in order, as "upload 24" for 24 bytes.
class FakeDevice : public spc::Device {
 public:
  std::shared_ptr<void> allocate(size_t bytes) override {
    told("allocate", bytes);
    const std::shared_ptr<void> memory(machine->give(machine->device, bytes),
                                       [kept = machine](void* given) { kept->take(kept->device, given); });
    put([=, made = memory.get()] { std::memset(made, 0, bytes); });
    return memory;
  }

  std::shared_ptr<void> pinned(size_t bytes) override {
    told("pinned", bytes);
    const std::shared_ptr<void> memory(machine->give(machine->pinned, bytes),
                                       [kept = machine](void* given) { kept->take(kept->pinned, given); });
    std::memset(memory.get(), 0, bytes);
    return memory;
  }

  void zero(void* device, size_t bytes) override {
    told("zero", bytes);
    CHECK(machine->has(machine->device, device, bytes), "no memory of the device");
    put([=] { std::memset(device, 0, bytes); });
  }

  void upload(const void* host, void* device, size_t bytes) override {
    told("upload", bytes);
    CHECK(machine->has(machine->pinned, host, bytes), "not pinned");
    CHECK(machine->has(machine->device, device, bytes), "no memory of the device");
    machine->copy(device, host, bytes);
  }

  void download(const void* device, void* host, size_t bytes) override {
    told("download", bytes);
    CHECK(machine->has(machine->device, device, bytes), "no memory of the device");
    machine->copy(host, device, bytes);
  }

  void copy(const void* from, void* to, size_t bytes) override {
    told("copy", bytes);
    CHECK(machine->has(machine->device, from, bytes) && machine->has(machine->device, to, bytes), "no memory of the device");
    machine->copy(to, from, bytes);
  }

  void synchronize() override {
    machine->calls.emplace_back("synchronize");
    machine->wait();
  }

  const std::string& name() const override { return name_; }
  const std::string& compute_capability() const override { return compute_capability_; }

  // Puts work on the stream, as a library does with its kernels.
  void put(std::function<void()> work) { machine->stream.push_back(std::move(work)); }
  // Return the calls since the last time.
  std::vector<std::string> asked() { return std::exchange(machine->calls, {}); }

  const std::shared_ptr<FakeMachine> machine = std::make_shared<FakeMachine>();

 private:
  void told(const char* call, size_t bytes) { machine->calls.push_back(std::string(call) + " " + std::to_string(bytes)); }

  const std::string name_ = "Fake GPU", compute_capability_ = "8.9";
};

// path = window + length; logits = logit_rows as float; cache' = cache + 1. One graph more has no file.
inline spc::EngineEntry fake_engine_entry() {
  const auto width = [](const char* name) { return spc::Dimension{0, name}; };
  const auto size = [](int64_t number) { return spc::Dimension{number, ""}; };
  spc::EngineEntry entry;
  entry.name = "gpu";
  entry.files = {{"verify", "verify.onnx"}};
  spc::Graph verify;
  verify.name = "verify";
  verify.inputs = {{"window", "int64", "window", "io", {size(1), width("window")}},
                   {"length", "int64", "length", "io", {size(1)}},
                   {"logit_rows", "int64", "logit_rows", "index", {width("logit_rows")}},
                   {"cache", "float32", "target.cache", "state", {size(1), size(5)}}};
  verify.outputs = {{"path", "int64", "path", "io", {size(1), width("window")}},
                    {"logits", "float32", "logits", "optional", {width("logit_rows")}},
                    {"features", "float32", "features", "link", {size(1), width("window"), size(25)}},
                    {"cache.out", "float32", "target.cache", "state", {size(1), size(5)}}};
  spc::Graph other = verify;
  other.name = "absent";
  entry.graphs = {verify, other};
  return entry;
}

// A library whose graphs are a few lines of C++.
class FakeEngine : public spc::DeviceEngine {
 public:
  explicit FakeEngine(std::shared_ptr<FakeDevice> device) : spc::DeviceEngine(device, fake_engine_entry()), fake_(std::move(device)) {}

  std::vector<const spc::Binding*> prepared;

 protected:
  spc::Run prepare(const spc::Binding& binding) override {
    prepared.push_back(&binding);
    return [this, &binding] {
      check_stopped();
      upload(binding);
      fake_->put([&binding] { compute(binding); });
      fake_->machine->calls.emplace_back("run");
      download(binding);
      device_->synchronize();
    };
  }

 private:
  template <class T>
  static T* at(const std::vector<spc::BoundTensor>& tensors, const std::string& name) {
    for (const spc::BoundTensor& each : tensors)
      if (each.tensor->name == name) return static_cast<T*>(each.address);
    return nullptr;
  }

  static void compute(const spc::Binding& binding) {
    const int64_t *const window = at<int64_t>(binding.inputs, "window"), *const rows = at<int64_t>(binding.inputs, "logit_rows");
    for (int64_t i = 0; i < binding.inputs[0].shape[1]; ++i)
      at<int64_t>(binding.outputs, "path")[i] = window[i] + *at<int64_t>(binding.inputs, "length");
    if (float* const logits = at<float>(binding.outputs, "logits"))
      for (int64_t i = 0; i < binding.inputs[2].shape[0]; ++i) logits[i] = static_cast<float>(rows[i]);
    for (int i = 0; i < 5; ++i) at<float>(binding.outputs, "cache.out")[i] = at<float>(binding.inputs, "cache")[i] + 1;
  }

  const std::shared_ptr<FakeDevice> fake_;
};

// ---- what tests expect

using Calls = std::vector<std::string>;

inline std::string joined(const Calls& calls) {
  std::string text;
  for (const std::string& each : calls) text += each + "; ";
  return text;
}

inline void check_calls(const Calls& found, const Calls& expected) {
  CHECK(found == expected, "found %s", joined(found).c_str());
}

// The error that `f` throws.
template <class F>
spc::Error error_of(F f) {
  try {
    f();
  } catch (const spc::Error& error) {
    return error;
  }
  CHECK(false, "no error");
  std::abort();
}

inline void check_error(const spc::Error& error, spc::Kind kind, const std::string& text) {
  const bool is_said = error.message.find(text) != std::string::npos;
  CHECK(error.kind == kind && is_said, "kind %d: %s", static_cast<int>(error.kind), error.message.c_str());
}
