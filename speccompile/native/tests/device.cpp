// Engines of a device, over a fake one: which buffers are copied and when, which functions of CUDA are called, and which runs
// become CUDA graphs. Then, with a library of ONNX Runtime and a bundle, for tests/native/test_native_device.py:
//   test_device tokens LIBRARY FOLDER     the processor, over a fake device's memory, gives the tokens that it gives alone
//   test_device choose LIBRARY FOLDER ENGINE     kind, message and hint of why an engine cannot run here, a line each
//   test_device open LIBRARY FOLDER ENGINE       the same of why it cannot be opened, where a GPU would work
#include "../runtime/device.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "../errors.h"
#include "../progress.h"
#include "../runtime/stopwatch.h"
#include "check.h"
#include "device_bundle.h"
#include "device_cuda.h"
#include "device_kept.h"
#include "fake_device.h"

namespace {

using namespace spc;

// ---- buffers, and copies around a run

Widths widths(int64_t window) { return {{"window", window}, {"logit_rows", window}}; }

void run(Engine& engine, int64_t window, bool logits = false) {
  const Run run = engine.bind("verify", widths(window), logits);
  const Array given = engine.host_view("window", {1, window}), path = engine.host_view("path", {1, window});
  std::iota(given.ints(), given.ints() + window, 0);
  run();
  for (int64_t i = 0; i < window; ++i)
    CHECK(path.ints()[i] == i + *engine.host_view("length", {1}).ints(), "path is %lld", static_cast<long long>(path.ints()[i]));
}

void test_only_counts_and_tokens_cross() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  *engine.host_view("length", {1}).ints() = 10;
  run(engine, 3);
  device->asked();
  run(engine, 3);
  check_calls(device->asked(), {"upload 24", "upload 8", "run", "download 24", "synchronize"});
  run(engine, 3, true);
  const Calls more = device->asked();
  CHECK(std::find(more.begin(), more.end(), "download 12") != more.end(), "logits stay: %s", joined(more).c_str());
  const float* const logits = engine.host_view("logits", {3}).floats();
  CHECK(logits[0] == 0 && logits[2] == 2, "logits are those of rows that were not counted");
}

void test_buffers_are_shared_by_name_and_shape() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  for (const int64_t window : {3, 1, 3}) run(engine, window);
  CHECK(engine.prepared.size() == 2, "a graph is bound again at the same shapes");
  const Binding &three = *engine.prepared[0], &one = *engine.prepared[1];
  CHECK(three.inputs[3].address == three.outputs[2].address, "a state is written elsewhere than it is read");
  CHECK(three.inputs[3].address == one.inputs[3].address, "two bindings have two states");
  CHECK(three.inputs[0].address != one.inputs[0].address, "one address for two shapes");
  CHECK(engine.host_view("window", {1, 3}).data == engine.host_view("window", {1, 3}).data, "a mirror moves");
  CHECK(engine.has("verify") && !engine.has("draft") && !engine.has("absent"), "graphs are those that have files");
  CHECK(three.widths() == "verify at window [1, 3], logit_rows [3]", "%s", three.widths().c_str());
}

void test_index_inputs_are_filled_once() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  run(engine, 4);
  run(engine, 4, true);
  const Calls calls = device->asked();
  CHECK(std::count(calls.begin(), calls.end(), "upload 32") == 3, "two windows and one index: %s", joined(calls).c_str());
  CHECK(engine.host_view("logit_rows", {4}).ints()[3] == 3, "an index does not count");
}

void test_what_stays_is_seen_as_a_copy() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  run(engine, 2);
  const Array cache = engine.host_view("target.cache", {1, 5});
  CHECK(cache.floats()[4] == 1 && cache.dtype == "float32", "the state is not what the graph wrote");
  cache.floats()[0] = 100;
  CHECK(!device->machine->has(device->machine->device, cache.data, 1), "the state itself was given away");
  run(engine, 2);
  CHECK(engine.host_view("target.cache", {1, 5}).floats()[0] == 2, "the copy is no copy, or not of the moment");
  CHECK(!engine.has_mirror("target.cache", {1, 5}) && engine.has_mirror("window", {1, 2}), "states have no mirrors");
  device->asked();
  engine.host_view("features", {1, 2, 25});
  check_calls(device->asked(), {"download 200", "synchronize"});
}

void test_an_engine_that_is_cleared_is_as_new() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  *engine.host_view("length", {1}).ints() = 7;
  run(engine, 2, true);
  engine.clear();
  CHECK(*engine.host_view("length", {1}).ints() == 0 && engine.host_view("path", {1, 2}).ints()[1] == 0, "a mirror is not cleared");
  CHECK(engine.host_view("target.cache", {1, 5}).floats()[0] == 0, "a state is not cleared");
  device->asked();
  run(engine, 2, true);
  check_calls(device->asked(), {"upload 16", "upload 8", "run", "download 16", "download 8", "synchronize"});
  CHECK(engine.host_view("logits", {2}).floats()[1] == 1, "an index was cleared");
}

void test_an_engine_that_is_stopped() {
  FakeEngine engine(std::make_shared<FakeDevice>());
  engine.stop();
  check_error(error_of([&] { run(engine, 2); }), Kind::kCancelled, "cancelled");
  engine.resume();
  run(engine, 2);
}

void test_memory_is_given_back() {
  const auto device = std::make_shared<FakeDevice>();
  const std::shared_ptr<FakeMachine> machine = device->machine;
  {
    FakeEngine engine(device);
    run(engine, 3, true);
    const size_t there = machine->device.size(), mirrors = machine->pinned.size();
    CHECK(there == 7 && mirrors == 5, "%zu and %zu buffers", there, mirrors);
  }
  CHECK(machine->device.empty() && machine->pinned.empty(), "memory is left");
}

// A prompt's last part may be of any width: memory for each would be 200 times that of the widest here.
void test_scratch_of_many_widths_takes_no_more_memory_than_a_few() {
  const auto device = std::make_shared<FakeDevice>();
  FakeEngine engine(device);
  for (int64_t window = 1; window <= 400; ++window) run(engine, window, true);
  std::set<const void*> features, logits;
  for (const Binding* each : engine.prepared) {
    features.insert(each->outputs[2].address);
    logits.insert(each->outputs[1].address);
  }
  CHECK(engine.prepared.size() == 400 && features.size() <= 10 && logits.size() <= 10, "%zu and %zu", features.size(), logits.size());
}

// ---- CUDA graphs

// The numbers with which windows of these widths run, those that are cancelled as well; a number for which `fails` holds is
// refused.
std::vector<int> numbers(const std::vector<int64_t>& windows, CudaGraphState& graph, const std::function<bool(int)>& fails = {},
                         const std::function<void()>& check_stopped = [] {}) {
  FakeEngine engine(std::make_shared<FakeDevice>());
  CudaGraphs captures;
  std::map<int64_t, const Binding*> bindings;
  std::vector<int> found;
  for (const int64_t window : windows) {
    engine.bind("verify", widths(window), false);
    if (!bindings.count(window)) bindings[window] = engine.prepared.back();
    const auto run = [&](int number) {
      found.push_back(number);
      if (fails && fails(number)) throw OrtError(1, "it failed");
    };
    try {
      captures.run(graph, *bindings[window], run, check_stopped);
    } catch (const Error& error) {
      if (error.kind != Kind::kCancelled) throw;
    }
  }
  return found;
}

void test_shapes_that_come_again_have_a_cuda_graph_of_their_own() {
  CudaGraphState graph("verify.onnx");
  CHECK((numbers({3, 5, 5, 5, 3, 3, 5}, graph) == std::vector<int>{-1, -1, 1, 1, -1, 2, 1}), "wrong numbers");
  CHECK((numbers({3, 3}, graph) == std::vector<int>{-1, 3}), "another engine takes a number that is in use");
}

void test_cuda_graphs_do_not_pile_up() {
  std::vector<int64_t> windows;
  for (int64_t window = 1; window < 20; ++window) windows.insert(windows.end(), {window, window});
  CudaGraphState graph("verify.onnx");
  const std::vector<int> found = numbers(windows, graph);
  CHECK(*std::max_element(found.begin(), found.end()) == kMaxCudaGraphs, "too many");
}

void test_a_capture_that_fails_is_told_once() {
  Calls told;
  log_to([&](Level, const std::string& line) { told.push_back(line); });
  CudaGraphState graph("verify.onnx");
  const std::vector<int> found = numbers({3, 3, 3, 3}, graph, [](int number) { return number > 0; });
  log_to({});
  CHECK((found == std::vector<int>{-1, 1, -1, -1, -1}), "the graph does not run on");
  check_calls(told, {"verify.onnx: runs without CUDA graphs: it failed"});
}

void test_a_graph_that_cannot_run() {
  CudaGraphState graph("verify.onnx");
  const Error error = error_of([&] { numbers({3}, graph, [](int) { return true; }); });
  check_error(error, Kind::kEngine, "verify at window [1, 3], logit_rows [3]: ONNX Runtime cannot run it: it failed");
}

void test_a_capture_that_is_cut_off_is_begun_anew() {
  CudaGraphState graph("verify.onnx");
  const std::vector<int> found = numbers({3, 3, 3, 3}, graph, [](int number) { return number == 1; }, refuse_cancelled);
  CHECK(graph.allowed() && (found == std::vector<int>{-1, 1, 2, 2}), "its number is used again, or none any more");
}

// ---- the stopwatch

double told_seconds = 0;

void test_a_pause_is_no_part_of_a_lap() {
  Stopwatch watch([] { return told_seconds; });
  watch.start();
  told_seconds = 2;
  watch.pause();
  told_seconds = 100;  // another thread's clock
  watch.resume();
  told_seconds = 103;
  CHECK(watch.lap() == 5 && watch.lap() == 0, "laps have gaps");
  CHECK(spc::clock(true) == wall_seconds, "a GPU's rounds are not timed by the wall");
}

void test_everything_alone() {
  test_only_counts_and_tokens_cross();
  test_buffers_are_shared_by_name_and_shape();
  test_index_inputs_are_filled_once();
  test_what_stays_is_seen_as_a_copy();
  test_an_engine_that_is_cleared_is_as_new();
  test_an_engine_that_is_stopped();
  test_memory_is_given_back();
  test_scratch_of_many_widths_takes_no_more_memory_than_a_few();
  test_what_is_kept_is_copied_saved_and_loaded();
  test_shapes_that_come_again_have_a_cuda_graph_of_their_own();
  test_cuda_graphs_do_not_pile_up();
  test_a_capture_that_fails_is_told_once();
  test_a_graph_that_cannot_run();
  test_a_capture_that_is_cut_off_is_begun_anew();
  test_a_pause_is_no_part_of_a_lap();
  test_copies_happen_in_order_when_somebody_waits();
  test_what_cuda_refuses_is_said();
  test_the_library_itself();
}

}  // namespace

int main(int count, char** words) {
  const std::string task = count > 1 ? words[1] : "";
  if (task == "tokens" && count == 4) {
    compare_tokens(words[2], words[3]);
  } else if ((task == "choose" || task == "open") && count == 5) {
    tell_refusal(words[2], words[3], words[4], task == "choose");
  } else {
    CHECK(task.empty(), "what is %s", task.c_str());
    test_everything_alone();
  }
}
