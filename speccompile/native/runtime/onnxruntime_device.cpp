#include "onnxruntime_device.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "../errors.h"
#include "cuda.h"

namespace spc {
namespace {

// While ONNX Runtime captures a CUDA graph, no thread of the process may allocate on the GPU or free what it has there; and
// with CUDA graphs a session does not run for several at once. So one thread at a time does anything on it.
std::mutex& gpu() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// The sessions of an engine's graphs: those that are opened first, the others with their first use.
class Sessions {
 public:
  Sessions(const Ort& library, std::string folder, const EngineEntry& entry, int threads, const Provider& provider)
      : library(library), entry(entry), threads(threads), provider(provider), folder_(std::move(folder)) {
    check_provider(library, provider);
    for (const std::string& name : eager_graphs(this->entry)) get(name);
  }

  DeviceSession& get(const std::string& graph) {
    std::unique_ptr<DeviceSession>& session = open_[graph];
    if (!session) session = std::make_unique<DeviceSession>(library, provider, folder_, entry.file(graph), threads);
    return *session;
  }

  const Ort& library;
  const EngineEntry entry;
  const int threads;
  const Provider provider;

 private:
  const std::string folder_;
  std::map<std::string, std::unique_ptr<DeviceSession>> open_;
};

class OnnxRuntimeDeviceEngine : public DeviceEngine {
 public:
  OnnxRuntimeDeviceEngine(std::shared_ptr<Sessions> sessions, std::shared_ptr<Device> device)
      : DeviceEngine(std::move(device), sessions->entry), sessions_(std::move(sessions)), library_(sessions_->library) {}

  void stop() override {
    const std::lock_guard<std::mutex> lock(options_mutex_);
    DeviceEngine::stop();
    for (const auto& each : options_) {
      OrtStatus* const refused = ort::RunOptionsSetTerminate(library_.api(), each.second.get());
      if (refused) ort::ReleaseStatus(library_.api(), refused);
    }
  }

  void resume() override {
    const std::lock_guard<std::mutex> lock(options_mutex_);
    DeviceEngine::resume();
    for (const auto& each : options_) library_.check(ort::RunOptionsUnsetTerminate(library_.api(), each.second.get()));
  }

 protected:
  Run prepare(const Binding& binding) override {
    DeviceSession& session = sessions_->get(binding.graph);
    return [this, &session, &binding, bound = session.bind(binding)] {
      check_stopped();
      upload(binding);
      device_->synchronize();
      const auto run = [&](int number) { session.run(bound.get(), options(number)); };
      captures_.run(session.capturing, binding, run, [this] { check_stopped(); });
      download(binding);
      device_->synchronize();
    };
  }

 private:
  // Return the options with an annotation number. They are made once: ONNX Runtime warns of an entry that is set again.
  const OrtRunOptions* options(int number) {
    const std::lock_guard<std::mutex> lock(options_mutex_);
    std::shared_ptr<OrtRunOptions>& found = options_[number];
    if (!found) {
      OrtRunOptions* made = nullptr;
      library_.check(ort::CreateRunOptions(library_.api(), &made));
      found = make_shared_handle(library_, made, ort::ReleaseRunOptions);
      const std::string& key = sessions_->provider.graph_key;
      library_.check(ort::AddRunConfigEntry(library_.api(), made, key.c_str(), std::to_string(number).c_str()));
      if (is_stopped()) library_.check(ort::RunOptionsSetTerminate(library_.api(), made));
    }
    return found.get();
  }

  const std::shared_ptr<Sessions> sessions_;
  const Ort& library_;
  CudaGraphs captures_;
  std::mutex options_mutex_;             // `stop` comes from any thread
  std::map<int, std::shared_ptr<OrtRunOptions>> options_;
};

// Engines of a program. A released engine is reset and used again: ONNX Runtime never frees its CUDA graphs, which belong to
// its buffers.
class Pool {
 public:
  Pool(std::shared_ptr<Sessions> sessions, std::shared_ptr<Device> device)
      : sessions_(std::move(sessions)), device_(std::move(device)) {}

  ~Pool() {
    const std::lock_guard<std::mutex> lock(gpu());
    idle_.clear();
    sessions_.reset();
  }

  std::unique_ptr<OnnxRuntimeDeviceEngine> take() {
    const std::lock_guard<std::mutex> busy(gpu());
    std::unique_ptr<OnnxRuntimeDeviceEngine> engine;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (idle_.empty()) {
        idle_.reserve(++made_);  // so that `give` never allocates
      } else {
        engine = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!engine) return std::make_unique<OnnxRuntimeDeviceEngine>(sessions_, device_);
    engine->resume();
    engine->clear();
    return engine;
  }

  void give(std::unique_ptr<OnnxRuntimeDeviceEngine> engine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(engine));
  }

  int threads() const { return sessions_->threads; }

 private:
  std::shared_ptr<Sessions> sessions_;
  const std::shared_ptr<Device> device_;
  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<OnnxRuntimeDeviceEngine>> idle_;
};

// An engine of a pool, which waits for the GPU, and goes back to it.
class Lent : public Engine {
 public:
  explicit Lent(std::shared_ptr<Pool> pool) : pool_(std::move(pool)), engine_(pool_->take()) {}
  ~Lent() override { pool_->give(std::move(engine_)); }

  Array host_view(const std::string& buffer, const Shape& shape) override {
    if (engine_->has_mirror(buffer, shape)) return engine_->host_view(buffer, shape);  // without the GPU
    const std::lock_guard<std::mutex> lock(gpu());
    return engine_->host_view(buffer, shape);
  }

  void write_state(const std::string& buffer, const Shape& shape, const void* values) override {
    const std::lock_guard<std::mutex> lock(gpu());
    engine_->write_state(buffer, shape, values);
  }

  Run bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span>) override {
    const std::lock_guard<std::mutex> lock(gpu());
    return [run = engine_->bind(graph, widths, logits)] {
      const std::lock_guard<std::mutex> busy(gpu());
      run();
    };
  }

  bool has(const std::string& graph) const override { return engine_->has(graph); }
  void stop() override { engine_->stop(); }
  void resume() override { engine_->resume(); }

 private:
  const std::shared_ptr<Pool> pool_;
  std::unique_ptr<OnnxRuntimeDeviceEngine> engine_;
};

class OnnxRuntimeDeviceProgram : public SharedEngine {
 public:
  explicit OnnxRuntimeDeviceProgram(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}
  std::unique_ptr<Engine> open() override { return std::make_unique<Lent>(pool_); }
  std::optional<int> threads() const override { return pool_->threads(); }

 private:
  const std::shared_ptr<Pool> pool_;
};

}  // namespace

void check_device(const Ort& library, const std::string& provider) {
  check_provider(library, find_provider(provider));
  open_cuda();
}

std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads) {
  return open_onnxruntime_device(library, folder, entry, threads, open_cuda(), find_provider(entry.provider));
}

std::shared_ptr<SharedEngine> open_onnxruntime_device(const Ort& library, const std::string& folder, const EngineEntry& entry,
                                                 int threads, std::shared_ptr<Device> device, const Provider& provider) {
  std::shared_ptr<Sessions> sessions;
  {
    const std::lock_guard<std::mutex> lock(gpu());
    sessions = std::make_shared<Sessions>(library, folder, entry, threads, provider);
  }
  return std::make_shared<OnnxRuntimeDeviceProgram>(std::make_shared<Pool>(std::move(sessions), std::move(device)));
}

}  // namespace spc
