#include "engine.h"

#include <algorithm>

#include "../errors.h"

namespace spc {
namespace {

[[noreturn]] void refuse_bundle(const std::string& what) {
  throw Error(Kind::kBundle, "manifest.json: " + what, "build the bundle again");
}

}  // namespace

std::nullptr_t Array::refuse(const char* expected) const {
  refuse_bundle("a buffer has the dtype " + dtype + ", expected " + expected);
}

void refuse_cancelled() { throw Error(Kind::kCancelled, "the generation was cancelled"); }

const std::string& dtype_of(const Dtypes& dtypes, const std::string& buffer) {
  const auto found = dtypes.find(buffer);
  if (found == dtypes.end()) refuse_bundle("no graph has the buffer " + python_repr(buffer));
  return found->second;
}

Dtypes buffer_dtypes(const std::vector<Graph>& graphs) {
  Dtypes found;
  for (const Graph& graph : graphs) {
    for (const Tensor& tensor : graph.inputs) found[tensor.buffer] = tensor.dtype;
    for (const Tensor& tensor : graph.outputs) found[tensor.buffer] = tensor.dtype;
  }
  return found;
}

bool supports_batch_slices(const std::vector<Graph>& graphs) {
  const auto is_by_row = [](const Tensor& tensor) { return tensor.is_batched; };
  return std::any_of(graphs.begin(), graphs.end(), [&](const Graph& graph) {
    return std::any_of(graph.inputs.begin(), graph.inputs.end(), is_by_row);
  });
}

Shape shape_for_rows(const Tensor& tensor, const Widths& widths, int64_t rows) {
  Shape shape = tensor.concrete_shape(widths);
  if (tensor.is_batched) shape.front() = rows;
  return shape;
}

bool is_scratch(const Tensor& tensor) { return tensor.role == role::kLink || tensor.role == role::kOptional; }

std::set<std::string> scratch_buffers(const std::vector<Graph>& graphs) {
  std::set<std::string> found;
  for (const Graph& graph : graphs)
    for (const std::vector<Tensor>* tensors : {&graph.inputs, &graph.outputs})
      for (const Tensor& tensor : *tensors)
        if (is_scratch(tensor)) found.insert(tensor.buffer);
  return found;
}

size_t scratch_size(size_t bytes) {
  size_t size = 1;
  while (size < bytes) size *= 2;
  return size;
}

std::vector<std::string> eager_graphs(const EngineEntry& entry) {
  if (entry.has(graph::kStep)) return {graph::kStep};
  std::vector<std::string> names;
  for (const auto& [name, file] : entry.files) names.push_back(name);
  return names;
}

}  // namespace spc
