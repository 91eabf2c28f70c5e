#include "engine.h"

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

std::vector<std::string> opened_first(const EngineEntry& entry) {
  if (entry.has("step")) return {"step"};
  std::vector<std::string> names;
  for (const auto& [name, file] : entry.files) names.push_back(name);
  return names;
}

}  // namespace spc
