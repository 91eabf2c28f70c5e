// CUDA's runtime library: memory, copies, one stream. One function checks every call (runtime/devices/cuda.py).
//
// The library is loaded, not linked, and its functions are declared here: machines without a GPU need no CUDA, and one
// binary runs with every release from CUDA 11 on.
#pragma once

#include <cstddef>
#include <memory>

#include "device.h"

namespace spc {

// Functions of libcudart that are used, without their prefix "cuda". They return cudaError_t. Tests replace them.
struct CudaRuntime {
  int (*GetDeviceCount)(int*) = nullptr;
  int (*SetDevice)(int) = nullptr;
  int (*DeviceGetAttribute)(int*, int attribute, int device) = nullptr;
  int (*GetDeviceProperties)(void*, int device) = nullptr;
  int (*StreamCreateWithFlags)(void** stream, unsigned) = nullptr;
  int (*StreamDestroy)(void* stream) = nullptr;
  int (*StreamSynchronize)(void* stream) = nullptr;
  int (*Malloc)(void**, size_t) = nullptr;
  int (*Free)(void*) = nullptr;
  int (*MallocHost)(void**, size_t) = nullptr;
  int (*FreeHost)(void*) = nullptr;
  int (*MemsetAsync)(void*, int value, size_t, void* stream) = nullptr;
  int (*MemcpyAsync)(void* to, const void* from, size_t, int kind, void* stream) = nullptr;
  int (*GetLastError)() = nullptr;
  const char* (*GetErrorName)(int) = nullptr;
  const char* (*GetErrorString)(int) = nullptr;
};

// Open the first GPU that this process sees. Throws Error(kEngine) without a GPU or CUDA.
std::shared_ptr<Device> open_cuda();
// The same with a loaded library, which must outlive the device.
std::shared_ptr<Device> open_cuda(const CudaRuntime& runtime);

}  // namespace spc
