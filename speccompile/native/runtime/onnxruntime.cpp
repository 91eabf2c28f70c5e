#include "onnxruntime.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "../errors.h"
#include "graph_signature.h"
#include "sessions.h"

namespace spc {
namespace {

constexpr size_t kAlignment = 64;  // as vector instructions like it

// Sessions by graph, shared by all engines of a program; the first ones are opened with it.
class Sessions {
 public:
  Sessions(const Ort& library, std::string folder, const EngineEntry& entry, int threads, bool verify)
      : library(library), entry(entry), threads(threads), folder_(std::move(folder)), verify_(verify) {
    for (const std::string& name : eager_graphs(this->entry)) get(name);
  }

  SharedSession get(const std::string& graph) {
    const std::lock_guard<std::mutex> lock(mutex_);
    SharedSession& session = open_[graph];
    if (session) return session;
    const SharedSession opened = shared_session(library, folder_, entry.file(graph), threads, verify_);
    for (const Graph& each : entry.graphs)
      if (each.name == graph) check_signature(library, opened, each, entry.file(graph));
    return session = opened;
  }

  const Ort& library;
  const EngineEntry entry;
  const int threads;

 private:
  const std::string folder_;
  const bool verify_;
  std::mutex mutex_;
  std::map<std::string, SharedSession> open_;
};

constexpr size_t kLarge = size_t{1} << 20;  // bytes from which memory is the system's own

// Zeroed memory. The system allocates pages of large buffers when they are first written: caches take the memory of their text.
// calloc would as well in a young process. In one that has freed blocks as large it takes those, and zeroes them whole.
class Memory {
 public:
  explicit Memory(size_t bytes) : all_(nullptr, &std::free) {
    if (bytes >= kLarge) {
      void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED) throw std::bad_alloc();
      all_ = Owned(pages, [bytes](void* begin) { munmap(begin, bytes); });
      aligned_ = pages;
      return;
    }
    all_.reset(std::calloc(bytes + kAlignment, 1));
    if (!all_) throw std::bad_alloc();
    size_t space = bytes + kAlignment;
    void* begin = all_.get();
    aligned_ = std::align(kAlignment, bytes, begin, space);
  }
  void* get() const { return aligned_; }

 private:
  using Owned = std::unique_ptr<void, std::function<void(void*)>>;

  Owned all_;
  void* aligned_;
};

class OnnxRuntimeEngine : public Engine {
 public:
  explicit OnnxRuntimeEngine(std::shared_ptr<Sessions> sessions)
      : sessions_(std::move(sessions)), library_(sessions_->library), dtypes_(buffer_dtypes(sessions_->entry.graphs)),
        scratch_(scratch_buffers(sessions_->entry.graphs)) {
    OrtMemoryInfo* memory = nullptr;
    library_.check(ort::CreateCpuMemoryInfo(library_.api(), ort::kDeviceAllocator, ort::kDefaultMemory, &memory));
    memory_ = make_shared_handle(library_, memory, ort::ReleaseMemoryInfo);
    OrtRunOptions* options = nullptr;
    library_.check(ort::CreateRunOptions(library_.api(), &options));
    options_ = make_shared_handle(library_, options, ort::ReleaseRunOptions);
  }

  Array host_view(const std::string& buffer, const Shape& shape) override {
    return {held(buffer, shape), shape, dtype_of(dtypes_, buffer)};
  }

  void write_state(const std::string& buffer, const Shape& shape, const void* values) override {
    const Array held = host_view(buffer, shape);
    if (held.data != values) std::memcpy(held.data, values, held.bytes());  // a view that was changed in place is the state
  }

  bool supports_batch_slices() const override { return spc::supports_batch_slices(sessions_->entry.graphs); }

  Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span> rows) override {
    const SharedSession session = sessions_->get(graph);
    OrtIoBinding* made = nullptr;
    library_.check(ort::CreateIoBinding(library_.api(), session.get(), &made));
    const std::shared_ptr<OrtIoBinding> binding = make_shared_handle(library_, made, ort::ReleaseIoBinding);
    try {
      for (const Graph& each : sessions_->entry.graphs)
        if (each.name == graph) bind_all(each, {widths, logits, rows}, made);
    } catch (const OrtError& refusal) {
      throw Error(Kind::kEngine, sessions_->entry.file(graph) + ": ONNX Runtime does not bind it: " + refusal.message,
                  "build the bundle again with this speccompile");
    }
    return [this, session, binding, graph] { run(session.get(), binding.get(), graph); };
  }

  bool has(const std::string& graph) const override { return sessions_->entry.has(graph); }

  void stop() override {
    const std::lock_guard<std::mutex> lock(stopping_);
    stopped_ = true;
    if (OrtStatus* refused = ort::RunOptionsSetTerminate(library_.api(), options_.get())) ort::ReleaseStatus(library_.api(), refused);
  }

  void resume() override {
    const std::lock_guard<std::mutex> lock(stopping_);
    stopped_ = false;
    library_.check(ort::RunOptionsUnsetTerminate(library_.api(), options_.get()));
  }

 private:
  // Zeroed memory of a buffer at a shape.
  void* held(const std::string& buffer, const Shape& shape) {
    size_t bytes = static_cast<size_t>(product(shape)) * item_size(dtype_of(dtypes_, buffer));
    const bool is_shared = scratch_.count(buffer);
    if (is_shared) bytes = scratch_size(bytes);
    const std::pair<std::string, Shape> place(buffer, is_shared ? Shape{static_cast<int64_t>(bytes)} : shape);
    const auto known = memories_.find(place);
    if (known != memories_.end()) return known->second.get();
    return memories_.emplace(place, Memory((bytes / kAlignment + 1) * kAlignment)).first->second.get();
  }

  struct Bound {
    const Widths& widths;
    bool logits;
    std::optional<Span> rows;
  };

  // Return the part of a buffer that a run reads or writes: the neighbouring lines of its rows, or all of it.
  std::shared_ptr<OrtValue> lines(const Tensor& tensor, const Bound& run) {
    const Shape whole = tensor.concrete_shape(run.widths);
    if (!run.rows || !tensor.is_batched) return view(tensor.buffer, whole, whole, 0);
    const Shape some = shape_for_rows(tensor, run.widths, run.rows->size());
    return is_scratch(tensor) ? view(tensor.buffer, some, some, 0) : view(tensor.buffer, whole, some, run.rows->start);
  }

  std::shared_ptr<OrtValue> view(const std::string& buffer, const Shape& whole, const Shape& shape, int64_t first) {
    const int64_t rows = shape.empty() ? 1 : shape.front();
    const std::string& dtype = dtype_of(dtypes_, buffer);
    const size_t bytes = static_cast<size_t>(product(shape)) * item_size(dtype);
    char* const begin = static_cast<char*>(held(buffer, whole)) + (rows ? bytes / static_cast<size_t>(rows) * static_cast<size_t>(first) : 0);
    OrtValue* value = nullptr;
    library_.check(ort::CreateTensorWithDataAsOrtValue(library_.api(), memory_.get(), begin, bytes, shape.data(), shape.size(),
                                                       onnx_type(dtype), &value));
    return make_shared_handle(library_, value, ort::ReleaseValue);
  }

  void bind_all(const Graph& graph, const Bound& run, OrtIoBinding* binding) {
    for (const Tensor& tensor : graph.inputs) {
      if (tensor.role == role::kIndex) {
        const Array index = host_view(tensor.buffer, tensor.concrete_shape(run.widths));
        for (size_t i = 0; i < index.count(); ++i) index.ints()[i] = static_cast<int64_t>(i);
      }
      library_.check(ort::BindInput(library_.api(), binding, tensor.name.c_str(), lines(tensor, run).get()));
    }
    for (const Tensor& tensor : graph.outputs) {
      if (tensor.role == role::kOptional && !(run.logits && tensor.name == names::kLogits)) continue;
      library_.check(ort::BindOutput(library_.api(), binding, tensor.name.c_str(), lines(tensor, run).get()));
    }
  }

  void run(OrtSession* session, OrtIoBinding* binding, const std::string& graph) {
    if (stopped_) refuse_cancelled();
    try {
      library_.check(ort::RunWithBinding(library_.api(), session, options_.get(), binding));
    } catch (const OrtError& refusal) {
      if (stopped_) refuse_cancelled();
      throw Error(Kind::kEngine, graph + ": ONNX Runtime cannot run it: " + refusal.message);
    }
  }

  const std::shared_ptr<Sessions> sessions_;
  const Ort& library_;
  const Dtypes dtypes_;
  const std::set<std::string> scratch_;
  std::shared_ptr<OrtMemoryInfo> memory_;
  std::shared_ptr<OrtRunOptions> options_;
  std::map<std::pair<std::string, Shape>, Memory> memories_;  // of scratch, by bytes
  std::mutex stopping_;  // the two always say the same: ours, and the one of `options_`
  std::atomic<bool> stopped_{false};
};

class OnnxRuntimeProgram : public SharedEngine {
 public:
  explicit OnnxRuntimeProgram(std::shared_ptr<Sessions> sessions) : sessions_(std::move(sessions)) {}
  std::unique_ptr<Engine> open() override { return std::make_unique<OnnxRuntimeEngine>(sessions_); }
  std::optional<int> threads() const override { return sessions_->threads; }

 private:
  std::shared_ptr<Sessions> sessions_;
};

}  // namespace

std::shared_ptr<SharedEngine> open_onnxruntime(const Ort& library, const std::string& folder, const EngineEntry& entry, int threads, bool verify) {
  return std::make_shared<OnnxRuntimeProgram>(std::make_shared<Sessions>(library, folder, entry, threads, verify));
}

}  // namespace spc
