// Persistent states in a device's memory: written next to the buffer that is read, copied, saved and loaded.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "../files.h"
#include "../runtime/drafter_state.h"
#include "fake_device.h"

// table' = table + window, written beside the table.
inline spc::EngineEntry learning() {
  const std::vector<spc::Dimension> shape = {{2, ""}};
  spc::Graph graph;
  graph.name = "draft";
  graph.inputs = {{"window", "int64", "window", "io", shape}, {"table", "int64", "kept.table", "state", shape}};
  graph.outputs = {{"next_total", "int64", "n_total", "io", shape}, {"table'", "int64", "next.kept.table", "state", shape}};
  spc::EngineEntry entry;
  entry.name = "gpu";
  entry.files = {{"draft", "draft.onnx"}};
  entry.graphs = {graph};
  return entry;
}

class LearningEngine : public spc::DeviceEngine {
 public:
  explicit LearningEngine(std::shared_ptr<FakeDevice> device) : spc::DeviceEngine(device, learning()), fake_(std::move(device)) {}

  int64_t table(int64_t place) { return host_view("kept.table", {2}).ints()[place]; }
  void learn(int64_t number) {
    const spc::Run run = bind("draft", {}, false);
    host_view("window", {2}).ints()[1] = number;
    fake_->asked();
    run();
  }

 protected:
  spc::Run prepare(const spc::Binding& binding) override {
    return [this, &binding] {
      upload(binding);
      fake_->put([&binding] {
        for (int i = 0; i < 2; ++i)
          static_cast<int64_t*>(binding.outputs[1].address)[i] =
              static_cast<const int64_t*>(binding.inputs[1].address)[i] + static_cast<const int64_t*>(binding.inputs[0].address)[i];
      });
      download(binding);
      device_->synchronize();
    };
  }

 private:
  const std::shared_ptr<FakeDevice> fake_;
};

inline void test_what_is_kept_is_copied_saved_and_loaded() {
  const auto device = std::make_shared<FakeDevice>();
  LearningEngine engine(device);
  engine.learn(7);
  check_calls(device->asked(), {"upload 16", "copy 16", "download 16", "synchronize"});
  engine.learn(2);
  CHECK(engine.table(0) == 0 && engine.table(1) == 9, "what was written is not what is read: %lld", static_cast<long long>(engine.table(1)));
  spc::Manifest manifest;
  const spc::EngineEntry entry = learning();
  manifest.graphs = entry.graphs;
  manifest.vocabulary_size = 5;
  const spc::PersistentState kept(engine, manifest, entry, "");
  const std::string path = "/tmp/speccompile-kept-" + std::to_string(getpid());
  kept.save(path);
  kept.reset();
  CHECK(engine.table(1) == 0, "what was reset is there");
  kept.load(path);
  CHECK(engine.table(0) == 0 && engine.table(1) == 9, "what was saved is not what was loaded");
  engine.learn(1);
  CHECK(engine.table(1) == 10, "what was loaded is not read");
  spc::write_file(path, spc::read_file(path).substr(0, 40));
  check_error(error_of([&] { kept.load(path); }), spc::Kind::kUsage, "not a file of states, or a truncated one: 40 bytes");
  CHECK(engine.table(1) == 10, "a file that is refused has changed something");
  std::remove(path.c_str());
  spc::Manifest other = manifest;
  other.graphs[0].inputs[1].shape = {{3, ""}};
  check_error(error_of([&] { spc::PersistentState(engine, other, entry, ""); }), spc::Kind::kBundle, "engine 'gpu' keeps other states than its bundle");
}
