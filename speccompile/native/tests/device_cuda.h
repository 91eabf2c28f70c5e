// Calls and refusals of CUDA, over a fake; and, where this machine has it, over the library itself.
#pragma once

#include <memory>
#include <string>

#include "../errors.h"
#include "check.h"
#include "fake_cuda.h"
#include "fake_device.h"

inline void test_copies_happen_in_order_when_somebody_waits() {
  FakeCuda cuda;
  {
    const std::shared_ptr<spc::Device> device = spc::open_cuda(cuda.runtime);
    CHECK(device->name() == "Fake GPU" && device->compute_capability() == "8.9", "%s", device->name().c_str());
    const std::shared_ptr<void> memory = device->allocate(16), host = device->pinned(16);
    auto* const numbers = static_cast<int64_t*>(host.get());
    CHECK(numbers[0] == 0 && numbers[1] == 0, "pinned memory is not zeroed");
    device->download(memory.get(), numbers, 16);
    device->synchronize();
    CHECK(numbers[1] == 0, "memory of the device is not zeroed");
    numbers[1] = 2;
    device->upload(numbers, memory.get(), 16);
    numbers[0] = 3;  // before the stream gets there: it is too early
    device->download(memory.get(), numbers, 16);
    device->synchronize();
    CHECK(numbers[0] == 3 && numbers[1] == 2, "the copies are out of order");
  }
  CHECK(cuda.machine.device.empty() && cuda.machine.pinned.empty() && cuda.streams == 0, "something is left");
}

inline void test_what_cuda_refuses_is_said() {
  const auto refused = [](const char* function, int error) {
    FakeCuda cuda;
    cuda.failures[function] = error;
    const spc::Error said = error_of([&] { spc::open_cuda(cuda.runtime)->allocate(1024); });
    CHECK(cuda.forgotten == 1, "the error may surface again");
    CHECK(cuda.machine.device.empty() && cuda.streams == 0, "something is left");
    return said;
  };
  const spc::Error old = refused("GetDeviceCount", 35), none = refused("GetDeviceCount", 100), full = refused("Malloc", 2);
  check_error(old, spc::Kind::kEngine, "CUDA cannot find a GPU: an error (cudaErrorInsufficientDriver)");
  CHECK(old.hint.find("install an NVIDIA driver") == 0, "%s", old.hint.c_str());
  check_error(none, spc::Kind::kEngine, "CUDA cannot find a GPU: an error (cudaErrorNoDevice)");
  CHECK(none.hint.find("CUDA_VISIBLE_DEVICES") != std::string::npos, "%s", none.hint.c_str());
  check_error(full, spc::Kind::kEngine, "CUDA cannot allocate 1024 bytes on the GPU: out of memory (cudaErrorMemoryAllocation)");
  CHECK(full.hint.find("smaller cache.max_length or batch_size") != std::string::npos, "%s", full.hint.c_str());
  check_error(refused("SetDevice", 999), spc::Kind::kEngine, "CUDA cannot use the GPU: an error (cudaErrorUnknown)");
}

// Check that this machine has a GPU, or a reason why it has none.
inline void test_the_library_itself() {
  try {
    const std::shared_ptr<spc::Device> device = spc::open_cuda();
    const bool is_known = !device->name().empty() && device->compute_capability().find('.') != std::string::npos;
    CHECK(is_known, "%s", device->name().c_str());
    const std::shared_ptr<void> memory = device->allocate(8), host = device->pinned(8);
    *static_cast<int64_t*>(host.get()) = 7;
    device->upload(host.get(), memory.get(), 8);
    device->download(memory.get(), host.get(), 8);
    device->synchronize();
    CHECK(*static_cast<int64_t*>(host.get()) == 7, "what was copied did not come back");
  } catch (const spc::Error& error) {
    const bool is_missing = error.message.find("CUDA's runtime library is not installed: ") == 0;
    check_error(error, spc::Kind::kEngine, is_missing ? "" : "CUDA cannot find a GPU: ");
  }
}
