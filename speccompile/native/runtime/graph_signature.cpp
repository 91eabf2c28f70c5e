#include "graph_signature.h"

#include <algorithm>
#include <map>
#include <vector>

#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

// An input or output as ONNX Runtime has it. sizes: below 0 where they have a name.
struct Signature {
  int type;
  std::vector<int64_t> sizes;
};

[[noreturn]] void refuse(const std::string& problem) { throw Error(Kind::kBundle, problem, "build the bundle again with this speccompile"); }

template <class Each>
std::string shown(const std::vector<Each>& sizes, std::string (*shown_one)(const Each&)) {
  std::vector<std::string> words;
  for (const Each& size : sizes) words.push_back(shown_one(size));
  return joined(words);
}

std::string shown_size(const int64_t& size) { return size < 0 ? "?" : std::to_string(size); }
std::string shown_dimension(const Dimension& size) { return size.width.empty() ? std::to_string(size.size) : size.width; }

std::string shown_type(int type) {
  for (const Dtype& each : kDtypes)
    if (each.onnx == type) return each.name;
  return "type " + std::to_string(type);
}

class Reader {
 public:
  Reader(const Ort& library, const SharedSession& session) : library_(library), session_(session) {
    library.check(ort::GetAllocatorWithDefaultOptions(library.api(), &allocator_));
  }

  std::map<std::string, Signature> inputs() const {
    return read(ort::SessionGetInputCount, ort::SessionGetInputName, ort::SessionGetInputTypeInfo);
  }
  std::map<std::string, Signature> outputs() const {
    return read(ort::SessionGetOutputCount, ort::SessionGetOutputName, ort::SessionGetOutputTypeInfo);
  }

 private:
  template <class Count, class Name, class Info>
  std::map<std::string, Signature> read(Count count_of, Name name_of, Info info_of) const {
    size_t count = 0;
    library_.check(count_of(library_.api(), session_.get(), &count));
    std::map<std::string, Signature> found;
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      library_.check(name_of(library_.api(), session_.get(), i, allocator_, &name));
      const std::string copy = name;
      library_.check(ort::AllocatorFree(library_.api(), allocator_, name));
      OrtTypeInfo* info = nullptr;
      library_.check(info_of(library_.api(), session_.get(), i, &info));
      found[copy] = signature(make_shared_handle(library_, info, ort::ReleaseTypeInfo).get());
    }
    return found;
  }

  Signature signature(const OrtTypeInfo* info) const {
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    library_.check(ort::CastTypeInfoToTensorInfo(library_.api(), info, &tensor));
    if (!tensor) return {0, {}};  // a sequence, or a map
    Signature found = {0, {}};
    size_t rank = 0;
    library_.check(speccompile::ort::GetTensorElementType(library_.api(), tensor, &found.type));
    library_.check(speccompile::ort::GetDimensionsCount(library_.api(), tensor, &rank));
    found.sizes.resize(rank);
    library_.check(speccompile::ort::GetDimensions(library_.api(), tensor, found.sizes.data(), rank));
    return found;
  }

  const Ort& library_;
  const SharedSession& session_;
  OrtAllocator* allocator_ = nullptr;
};

// Return whether a graph's input has the manifest's dtype and shape: numbers are equal, named sizes may be any.
bool fits(const Signature& own, const Tensor& told) {
  if (own.type != onnx_type(told.dtype) || own.sizes.size() != told.shape.size()) return false;
  for (size_t i = 0; i < own.sizes.size(); ++i)
    if (own.sizes[i] >= 0 && (!told.shape[i].width.empty() || told.shape[i].size != own.sizes[i])) return false;
  return true;
}

void check(const std::map<std::string, Signature>& found, const std::vector<Tensor>& tensors, const std::string& what) {
  std::map<std::string, const Tensor*> told;
  for (const Tensor& tensor : tensors) told[tensor.name] = &tensor;
  for (const auto& [name, tensor] : told)
    if (!found.count(name)) refuse(what + python_repr(name) + ": the graph does not have it");
  for (const auto& [name, own] : found) {
    const auto tensor = told.find(name);
    if (tensor == told.end()) refuse(what + python_repr(name) + ": the manifest does not have it");
    if (!fits(own, *tensor->second))
      refuse(what + python_repr(name) + " is " + shown_type(own.type) + " [" + shown(own.sizes, shown_size) + "], the manifest says " +
             tensor->second->dtype + " [" + shown(tensor->second->shape, shown_dimension) + "]");
  }
}

}  // namespace

void check_signature(const Ort& library, const SharedSession& session, const Graph& graph, const std::string& file) {
  const Reader reader(library, session);
  check(reader.inputs(), graph.inputs, file + ": input ");
  check(reader.outputs(), graph.outputs, file + ": output ");
}

}  // namespace spc
