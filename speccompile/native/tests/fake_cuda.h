// CUDA's runtime over a fake machine's memory: functions that fail where they are told to.
#pragma once

#include <map>
#include <string>

#include "../runtime/cuda.h"
#include "fake_device.h"

class FakeCuda {
 public:
  FakeCuda() {
    now() = this;
    runtime.GetDeviceCount = [](int* count) { return *count = 1, now()->result("GetDeviceCount"); };
    runtime.SetDevice = [](int) { return now()->result("SetDevice"); };
    runtime.DeviceGetAttribute = [](int* value, int attribute, int) {
      CHECK(attribute == 75 || attribute == 76, "attribute %d", attribute);
      return *value = attribute == 75 ? 8 : 9, now()->result("DeviceGetAttribute");
    };
    runtime.GetDeviceProperties = [](void* properties, int) {
      std::memcpy(properties, "Fake GPU", 9);
      return now()->result("GetDeviceProperties");
    };
    runtime.StreamCreateWithFlags = [](void** stream, unsigned flags) {
      CHECK(flags == 1, "a stream that waits for others");
      *stream = &now()->streams;
      return ++now()->streams, now()->result("StreamCreateWithFlags");
    };
    runtime.StreamDestroy = [](void*) { return --now()->streams, now()->result("StreamDestroy"); };
    runtime.StreamSynchronize = [](void*) { return now()->machine.wait(), now()->result("StreamSynchronize"); };
    runtime.Malloc = [](void** made, size_t bytes) { return now()->give(made, now()->machine.device, bytes, "Malloc"); };
    runtime.MallocHost = [](void** made, size_t bytes) { return now()->give(made, now()->machine.pinned, bytes, "MallocHost"); };
    runtime.Free = [](void* given) { return FakeMachine::take(now()->machine.device, given), 0; };
    runtime.FreeHost = [](void* given) { return FakeMachine::take(now()->machine.pinned, given), 0; };
    runtime.MemsetAsync = [](void* device, int value, size_t bytes, void* stream) {
      CHECK(stream && now()->machine.has(now()->machine.device, device, bytes), "no memory of the device");
      now()->machine.stream.push_back([=] { std::memset(device, value, bytes); });
      return now()->result("MemsetAsync");
    };
    runtime.MemcpyAsync = [](void* to, const void* from, size_t bytes, int kind, void* stream) {
      CHECK(stream && kind >= 1 && kind <= 3, "kind %d", kind);
      CHECK(kind == 2 || now()->machine.has(now()->machine.device, to, bytes), "no memory of the device");
      CHECK(kind == 1 || now()->machine.has(now()->machine.device, from, bytes), "no memory of the device");
      now()->machine.copy(to, from, bytes);
      return now()->result("MemcpyAsync");
    };
    runtime.GetLastError = [] { return ++now()->forgotten, 0; };
    runtime.GetErrorName = [](int error) {
      if (error == 2) return "cudaErrorMemoryAllocation";
      if (error == 35) return "cudaErrorInsufficientDriver";
      return error == 100 ? "cudaErrorNoDevice" : "cudaErrorUnknown";
    };
    runtime.GetErrorString = [](int error) { return error == 2 ? "out of memory" : "an error"; };
  }

  spc::CudaRuntime runtime;
  FakeMachine machine;
  std::map<std::string, int> failures;  // function -> the error that it returns
  int streams = 0, forgotten = 0;

 private:
  // The one that is in use: CUDA's functions know of no object.
  static FakeCuda*& now() {
    static FakeCuda* current = nullptr;
    return current;
  }

  int result(const std::string& function) { return failures.count(function) ? failures[function] : 0; }

  int give(void** made, std::map<const char*, size_t>& memory, size_t bytes, const char* function) {
    if (!result(function)) *made = machine.give(memory, bytes);
    return result(function);
  }
};
