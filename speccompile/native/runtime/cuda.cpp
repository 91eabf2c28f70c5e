#include "cuda.h"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <string>

#include "../errors.h"

namespace spc {
namespace {

// cudaDeviceAttr, cudaMemcpyKind, flags of a stream
enum : int { kMajor = 75, kMinor = 76, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kNonBlocking = 1 };

// cudaDeviceProp grows from release to release, and is 1 KiB or so. It begins with the name.
constexpr size_t kNameSize = 256, kPropertiesSize = 16384;

constexpr const char* kLibraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};

const char* hint(const std::string& name) {
  if (name == "cudaErrorInsufficientDriver")
    return "install an NVIDIA driver that is new enough; `nvidia-smi` shows the one in use";
  if (name == "cudaErrorNoDevice") return "`nvidia-smi` lists the GPUs; CUDA_VISIBLE_DEVICES may hide them";
  if (name == "cudaErrorMemoryAllocation")
    return "free GPU memory, or build the bundle with a smaller cache.max_length or batch_size";
  return "`nvidia-smi` shows the driver and the GPUs";
}

void* open_library() {
  std::string reasons;
  for (const char* name : kLibraries) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason ? reason : name);
  }
  throw Error(Kind::kEngine, "CUDA's runtime library is not installed: " + reasons,
              "install CUDA, or pip install nvidia-cuda-runtime, and name the folder of libcudart in LD_LIBRARY_PATH");
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw Error(Kind::kEngine, std::string("CUDA's runtime library has no ") + name, "install CUDA 11 or newer");
}

CudaRuntime load() {
  void* library = open_library();  // never let go: memory is freed through it until the process ends
  CudaRuntime found;
  find(library, "cudaGetDeviceCount", found.GetDeviceCount);
  find(library, "cudaSetDevice", found.SetDevice);
  find(library, "cudaDeviceGetAttribute", found.DeviceGetAttribute);
  find(library, "cudaGetDeviceProperties", found.GetDeviceProperties);
  find(library, "cudaStreamCreateWithFlags", found.StreamCreateWithFlags);
  find(library, "cudaStreamDestroy", found.StreamDestroy);
  find(library, "cudaStreamSynchronize", found.StreamSynchronize);
  find(library, "cudaMalloc", found.Malloc);
  find(library, "cudaFree", found.Free);
  find(library, "cudaMallocHost", found.MallocHost);
  find(library, "cudaFreeHost", found.FreeHost);
  find(library, "cudaMemsetAsync", found.MemsetAsync);
  find(library, "cudaMemcpyAsync", found.MemcpyAsync);
  find(library, "cudaGetLastError", found.GetLastError);
  find(library, "cudaGetErrorName", found.GetErrorName);
  find(library, "cudaGetErrorString", found.GetErrorString);
  return found;
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaRuntime& runtime) : runtime_(runtime) {
    int count = 0, major = 0, minor = 0;
    check(runtime_.GetDeviceCount(&count), "find a GPU");
    check(runtime_.SetDevice(0), "use the GPU");
    check(runtime_.DeviceGetAttribute(&major, kMajor, 0), "ask the GPU");
    check(runtime_.DeviceGetAttribute(&minor, kMinor, 0), "ask the GPU");
    compute_capability_ = std::to_string(major) + "." + std::to_string(minor);
    std::vector<char> properties(kPropertiesSize);
    check(runtime_.GetDeviceProperties(properties.data(), 0), "ask the GPU");
    name_.assign(properties.data(), strnlen(properties.data(), kNameSize));
    // Not the default stream, on which others of this process wait for everything.
    void* stream = nullptr;
    check(runtime_.StreamCreateWithFlags(&stream, kNonBlocking), "make a stream");
    stream_ = {stream, runtime_.StreamDestroy};
  }

  std::shared_ptr<void> allocate(size_t bytes) override {
    void* made = nullptr;
    check(runtime_.Malloc(&made, bytes), "allocate " + std::to_string(bytes) + " bytes on the GPU");
    const std::shared_ptr<void> memory(made, runtime_.Free);
    zero(made, bytes);
    return memory;
  }

  std::shared_ptr<void> pinned(size_t bytes) override {
    void* made = nullptr;
    check(runtime_.MallocHost(&made, bytes), "allocate " + std::to_string(bytes) + " pinned bytes");
    const std::shared_ptr<void> memory(made, runtime_.FreeHost);
    if (bytes) std::memset(made, 0, bytes);
    return memory;
  }

  void zero(void* device, size_t bytes) override {
    if (bytes) check(runtime_.MemsetAsync(device, 0, bytes, stream_.get()), "zero memory");
  }

  void upload(const void* host, void* device, size_t bytes) override {
    check(runtime_.MemcpyAsync(device, host, bytes, kHostToDevice, stream_.get()), "copy to the GPU");
  }

  void download(const void* device, void* host, size_t bytes) override {
    check(runtime_.MemcpyAsync(host, device, bytes, kDeviceToHost, stream_.get()), "copy from the GPU");
  }

  void copy(const void* from, void* to, size_t bytes) override {
    check(runtime_.MemcpyAsync(to, from, bytes, kDeviceToDevice, stream_.get()), "copy on the GPU");
  }

  void synchronize() override { check(runtime_.StreamSynchronize(stream_.get()), "finish its work"); }

  const std::string& name() const override { return name_; }
  const std::string& compute_capability() const override { return compute_capability_; }

 private:
  // Throws saying `what` CUDA could not do.
  void check(int error, const std::string& what) const {
    if (!error) return;
    const std::string text = runtime_.GetErrorString(error), name = runtime_.GetErrorName(error);
    runtime_.GetLastError();  // it must not surface in the next call
    throw Error(Kind::kEngine, "CUDA cannot " + what + ": " + text + " (" + name + ")", hint(name));
  }

  const CudaRuntime runtime_;
  std::string name_, compute_capability_;
  std::shared_ptr<void> stream_;
};

}  // namespace

std::shared_ptr<Device> open_cuda() {
  static auto* mutex = new std::mutex;
  static const CudaRuntime* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (!loaded) loaded = new CudaRuntime(load());
  return open_cuda(*loaded);
}

std::shared_ptr<Device> open_cuda(const CudaRuntime& runtime) { return std::make_shared<CudaDevice>(runtime); }

}  // namespace spc
