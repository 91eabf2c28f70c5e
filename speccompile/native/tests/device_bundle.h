// A bundle's graphs in ONNX Runtime, on the processor in a GPU's place: what tests/native/test_native_device.py runs.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../bundle/reader.h"
#include "../errors.h"
#include "../progress.h"
#include "../runtime/engines.h"
#include "../runtime/decode_loop.h"
#include "../runtime/onnxruntime.h"
#include "../runtime/onnxruntime_device.h"
#include "check.h"
#include "fake_device.h"

using Generated = std::vector<spc::TokenIds>;

// The processor, bound to the memory of a fake device.
inline spc::Provider on_processor() { return {"CPUExecutionProvider", "", "", "gpu_graph_id", "Cpu", ""}; }

// Prompts of every length that matters to a bundle with batches of three and parts of sixteen.
inline Generated prompts(const spc::Manifest& manifest) {
  Generated found;
  for (int64_t row = 0; row < manifest.batch_size; ++row) {
    spc::TokenIds& ids = found.emplace_back();
    for (int64_t i = 0; i < 3 + 17 * row; ++i) ids.push_back((7 + 31 * row + 13 * (i % 5)) % manifest.vocabulary_size);
  }
  return found;
}

inline Generated generate(spc::Engine& engine, const spc::Manifest& manifest, bool speculative) {
  spc::DecodeLoop loop(engine, manifest, manifest.graphs, true);
  spc::Options options;
  options.max_new_tokens = 40;
  spc::Rows rows;
  for (const spc::TokenIds& prompt : prompts(manifest))
    rows.emplace_back(prompt, options, spc::SamplingParams(), manifest.max_length, manifest.eos_token_ids, nullptr,
                      std::vector<std::string>());
  loop.begin(rows, speculative, false);
  const auto is_active = [](const spc::SequenceState& row) { return row.is_active(); };
  while (std::any_of(rows.begin(), rows.end(), is_active)) loop.step();
  Generated found;
  for (const spc::SequenceState& row : rows) found.push_back(row.token_ids);
  return found;
}

// Check that an engine that is lent again holds nothing of its last borrower, in buffers of a single shape.
inline void check_new(spc::Engine& engine, const spc::Graph& graph) {
  const auto is_fixed = [](const spc::Dimension& size) { return size.width.empty(); };
  for (const spc::Tensor& tensor : graph.inputs) {
    if (!std::all_of(tensor.shape.begin(), tensor.shape.end(), is_fixed)) continue;
    const spc::Array array = engine.host_view(tensor.buffer, tensor.concrete_shape({}));
    const char *const start = static_cast<const char*>(array.data), *const end = start + array.bytes();
    CHECK(std::all_of(start, end, [](char byte) { return byte == 0; }), "%s is not zero", tensor.name.c_str());
  }
}

// Engines that others have had, and two that run at once, give the same as well; a run that is cut off leaves nothing.
inline void check_lent_engines(spc::SharedEngine& program, const spc::Manifest& manifest, FakeDevice& device,
                               const Generated& expected) {
  device.asked();
  std::unique_ptr<spc::Engine> one = program.open();
  CHECK(generate(*one, manifest, true) == expected, "an engine that is lent again gives other tokens");
  for (const std::string& call : device.asked())
    CHECK(call.rfind("allocate", 0) && call.rfind("pinned", 0), "an engine that is lent again asks to %s bytes", call.c_str());
  one->stop();
  check_error(error_of([&] { generate(*one, manifest, true); }), spc::Kind::kCancelled, "cancelled");
  one->resume();
  const std::unique_ptr<spc::Engine> two = program.open();
  Generated beside;
  std::thread other([&] { beside = generate(*two, manifest, true); });
  const Generated here = generate(*one, manifest, true);
  other.join();
  CHECK(here == expected && beside == expected, "two engines at once give other tokens");
  one->stop();
  one.reset();
  one = program.open();
  for (const spc::Graph& graph : manifest.engines.front().graphs) check_new(*one, graph);
  CHECK(generate(*one, manifest, true) == expected, "an engine that was stopped is not lent again");
}

// Check the messages about a graph left to the processor, and about a missing provider.
inline void check_what_is_told(const spc::Ort& library, const spc::OpenedBundle& bundle, const std::string& file) {
  std::vector<std::string> told;
  spc::log_to([&](spc::Level, const std::string& line) { told.push_back(line); });
  spc::Provider absent = on_processor();
  absent.name = "AbsentExecutionProvider";
  const spc::DeviceSession session(library, absent, bundle.folder, file, 1);
  CHECK(told.size() == 1, "told %zu lines", told.size());
  CHECK(told[0].find(": ONNX Runtime leaves nodes to the CPU: ") != std::string::npos, "told: %s", told[0].c_str());
  spc::log_to({});
  const std::vector<std::string> providers = library.providers();
  const spc::Provider cuda = spc::find_provider("cuda");
  if (std::find(providers.begin(), providers.end(), cuda.name) != providers.end()) return;
  const spc::Error error = error_of([&] { spc::DeviceSession(library, cuda, bundle.folder, file, 1); });
  check_error(error, spc::Kind::kEngine, "could not load CUDAExecutionProvider for " + file.substr(file.rfind('/') + 1) + ": ");
}

inline void compare_tokens(const char* path, const char* folder) {
  const spc::Ort& library = spc::Ort::load(path);
  const spc::OpenedBundle bundle = spc::open_bundle(folder);
  const spc::EngineEntry& entry = bundle.manifest.engines.front();
  std::vector<std::string> told;
  spc::log_to([&](spc::Level, const std::string& line) { told.push_back(line); });
  const auto device = std::make_shared<FakeDevice>();
  const std::shared_ptr<FakeMachine> machine = device->machine;
  {
    const auto alone = spc::open_onnxruntime(library, bundle.folder, entry, 1, false);
    const auto program = spc::open_onnxruntime_device(library, bundle.folder, entry, 1, device, on_processor());
    Generated expected;
    for (const bool speculative : {false, true}) {
      expected = generate(*alone->open(), bundle.manifest, speculative);
      CHECK(generate(*program->open(), bundle.manifest, speculative) == expected, "over a device's memory: other tokens");
    }
    check_lent_engines(*program, bundle.manifest, *device, expected);
    for (const spc::TokenIds& ids : expected) {
      for (const int64_t id : ids) std::printf("%lld ", static_cast<long long>(id));
      std::printf("\n");
    }
  }
  CHECK(machine->device.empty() && machine->pinned.empty(), "memory is left");
  CHECK(told.empty(), "told: %s", told[0].c_str());
  check_what_is_told(library, bundle, entry.files.front().second);
}

// choose: whether an engine runs here, or the error of opening it on a device that works.
inline void tell_refusal(const char* path, const char* folder, const char* engine, bool choose) {
  const spc::Ort& library = spc::Ort::load(path);
  const spc::OpenedBundle bundle = spc::open_bundle(folder);
  try {
    if (choose) spc::choose(library, bundle.manifest, engine);
    for (const spc::EngineEntry& entry : bundle.manifest.engines)
      if (entry.name == engine)
        spc::open_onnxruntime_device(library, bundle.folder, entry, 1, std::make_shared<FakeDevice>(),
                                     spc::find_provider(entry.provider));
  } catch (const spc::Error& error) {
    std::printf("%d\n%s\n%s\n", static_cast<int>(error.kind), error.message.c_str(), error.hint.c_str());
  }
}
