// CUDA's runtime library: memory, copies, one stream. Every call is checked in one place (runtime/cuda.py).
//
// It is loaded, not linked, and its functions are declared here: what has no GPU needs nothing of CUDA, and one binary runs
// with every release from CUDA 11 on.
#pragma once

#include <cstddef>
#include <memory>

#include "device.h"

namespace spc {

// The functions of libcudart that are used, without their "cuda". They return cudaError_t. A test gives its own.
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

// The first GPU that this process sees. Throws Error(kEngine) when there is none, or no CUDA.
std::shared_ptr<Device> open_cuda();
// The same of a library that is already there, which outlives the device.
std::shared_ptr<Device> open_cuda(const CudaRuntime& runtime);

}  // namespace spc
