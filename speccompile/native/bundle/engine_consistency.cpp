#include "engine_consistency.h"

#include <algorithm>
#include <map>

#include "described.h"

namespace spc {
namespace {

bool is_float(const std::string& dtype) { return dtype == dtype::kFloat32 || dtype == dtype::kFloat16 || dtype == dtype::kBfloat16; }

// The tensor of an engine that updates only caches in place: see `with_tensorrt_states` in Python.
Tensor with_tensorrt_state(Tensor tensor, const Tensor& own, bool is_output) {
  if (tensor.role == role::kState && own.dtype == dtype::kFloat8e4m3fn) tensor.dtype = own.dtype;
  if (starts_with(tensor.buffer, kPersistentPrefix) || is_recurrent_state(tensor.buffer)) {
    if (is_output) tensor.buffer = kOutOfPlacePrefix + tensor.buffer;
  } else if (is_output && tensor.role == role::kState && (tensor.dtype == dtype::kInt8 || tensor.dtype == dtype::kFloat8e4m3fn)) {
    tensor.buffer = kNewRowsPrefix + tensor.buffer;
    tensor.shape[2] = {0, "window"};
    tensor.role = role::kLink;
  } else if (tensor.role == role::kState && tensor.dtype == dtype::kInt64 && tensor.shape.size() == 2) {
    tensor.dtype = dtype::kFloat32;
    tensor.shape = {tensor.shape[0], {1, ""}, tensor.shape[1], {1, ""}};
  }
  return tensor;
}

bool is_same(const Tensor& one, const Tensor& other, bool with_type) {
  return one.shape == other.shape && one.role == other.role && one.buffer == other.buffer && (!with_type || one.dtype == other.dtype);
}

void check_pairs(const std::string& way, const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  std::map<std::string, const Tensor*> mine, theirs;
  for (const Tensor& tensor : found) mine[tensor.name] = &tensor;
  for (const Tensor& tensor : wanted) theirs[tensor.name] = &tensor;
  for (const auto& [name, tensor] : mine)
    if (!theirs.count(name)) refuse("the " + way + " " + python_repr(name) + " is unknown to the bundle's graph");
  for (const auto& [name, tensor] : theirs) {
    const auto found_it = mine.find(name);
    if (found_it == mine.end()) refuse("the " + way + " " + python_repr(name) + " is one of the bundle's graph");
    const Tensor& own = *found_it->second;
    const bool is_cache = tensor->role == role::kState && is_float(tensor->dtype) && is_float(own.dtype);
    if (!is_same(own, *tensor, !is_cache) && !is_same(own, with_tensorrt_state(*tensor, own, way == "output"), true))
      refuse("the " + way + " " + python_repr(name) + " is " + words_of(own) + ", that of the bundle is " + words_of(*tensor));
  }
}

}  // namespace

void check_engine(const EngineEntry& engine, const std::vector<Graph>& graphs) {
  const Words own = names_of(engine.graphs);
  Words names = names_of(graphs);
  const auto sees = [](const Graph& graph) { return graph.input(names::kMedia) != nullptr; };
  if (!engine.build.is_null() && std::any_of(graphs.begin(), graphs.end(), sees)) names.push_back(kEncodeImage);
  if (sorted(own) != sorted(names))
    refuse("its graphs are " + (own.empty() ? "none" : joined(own, ", ")) + ", the bundle's are " + joined(names, ", "));
  for (const Graph& graph : graphs) {
    const Graph& mine = *std::find_if(engine.graphs.begin(), engine.graphs.end(), [&](const Graph& each) { return each.name == graph.name; });
    try {
      check_pairs("input", mine.inputs, graph.inputs);
      check_pairs("output", mine.outputs, graph.outputs);
    } catch (const Error& error) {
      refuse("graph " + python_repr(graph.name) + ": " + error.message);
    }
  }
}

}  // namespace spc
