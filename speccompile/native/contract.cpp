#include "contract.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "errors.h"
#include "words.h"

namespace spc {

int64_t product(const Shape& shape) {
  int64_t all = 1;
  for (const int64_t size : shape) all *= size;
  return all;
}

Json Dimension::to_json() const { return width.empty() ? Json(size) : Json(width); }

Shape Tensor::concrete_shape(const Widths& widths) const {
  Shape found;
  found.reserve(shape.size());
  for (const Dimension& each : shape) {
    if (each.width.empty()) {
      found.push_back(each.size);
      continue;
    }
    const size_t plus = each.width.find('+');
    const auto width = widths.find(each.width.substr(0, plus));
    if (width == widths.end())
      throw Error(Kind::kBundle, "manifest.json: tensor " + python_repr(name) + " has the width " + python_repr(each.width) +
                                     ", which this runtime does not know",
                  "upgrade speccompile");
    const int64_t more = plus == std::string::npos ? 0 : std::strtoll(each.width.c_str() + plus + 1, nullptr, 10);
    found.push_back(width->second + more);
  }
  return found;
}

namespace {

std::vector<Tensor> tensors(const Json& rows) {
  std::vector<Tensor> found;
  for (const Json& row : rows.list()) {
    Tensor tensor{row["name"].text(), row["dtype"].text(), row["buffer"].text(), row["role"].text(), {}, false};
    for (const Json& size : row["shape"].list()) tensor.shape.push_back({size.integer(), size.text()});
    found.push_back(std::move(tensor));
  }
  return found;
}

const Tensor* named(const std::vector<Tensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& each) { return each.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

Graph Graph::from_json(const Json& data) { return {data["name"].text(), tensors(data["inputs"]), tensors(data["outputs"])}; }

const Tensor* Graph::input(const std::string& name) const { return named(inputs, name); }
const Tensor* Graph::output(const std::string& name) const { return named(outputs, name); }

std::vector<Graph> with_fixed_batch(std::vector<Graph> graphs, int64_t rows) {
  for (Graph& graph : graphs)
    for (std::vector<Tensor>* tensors : {&graph.inputs, &graph.outputs})
      for (Tensor& tensor : *tensors) {
        tensor.is_batched = !tensor.shape.empty() && tensor.shape.front().width == kBatch;
        for (Dimension& size : tensor.shape)
          if (size.width == kBatch) size = {rows, ""};
      }
  return graphs;
}

bool has_part(const std::string& buffer, const std::string& part) {
  return ("." + buffer + ".").find("." + part + ".") != std::string::npos;
}

bool is_recurrent_state(const std::string& buffer) {
  return std::any_of(std::begin(recurrent_state::kAll), std::end(recurrent_state::kAll),
                     [&](const char* kind) { return has_part(buffer, kind); });
}

bool is_cache(const std::string& buffer) {
  return std::any_of(std::begin(kCachedKinds), std::end(kCachedKinds), [&](const std::string& kind) {
    return has_part(buffer, kind) || has_part(buffer, kind + kScaleSuffix);
  });
}

bool is_own_cache(const std::string& buffer) {
  return std::any_of(std::begin(kCachedKinds), std::end(kCachedKinds), [&](const char* kind) {
    const std::string drafter = std::string(component::kDrafter) + ".", named = std::string(kind) + ".";
    if (!starts_with(buffer, drafter)) return false;
    const size_t next = buffer.find_first_not_of("0123456789", drafter.size());  // of several models: drafter.1.key.0
    return buffer.compare(drafter.size(), named.size(), named) == 0 || buffer.compare(next, named.size() + 1, "." + named) == 0;
  });
}

bool is_scale(const std::string& buffer) {
  return (buffer + ".").find(std::string(kScaleSuffix) + ".") != std::string::npos;
}

bool has_recurrent_states(const std::vector<Graph>& graphs, const std::string& part) {
  const auto is_its = [&](const Tensor& tensor) {
    const std::string name = copy_after_run(tensor).empty() ? tensor.buffer : copy_after_run(tensor);
    return starts_with(name, part + ".") && is_recurrent_state(name);
  };
  return std::any_of(graphs.begin(), graphs.end(),
                     [&](const Graph& graph) { return std::any_of(graph.outputs.begin(), graph.outputs.end(), is_its); });
}

std::string copy_after_run(const Tensor& output) {
  const bool is_copied = output.role == role::kState && starts_with(output.buffer, kOutOfPlacePrefix);
  return is_copied ? output.buffer.substr(std::strlen(kOutOfPlacePrefix)) : "";
}

const Dtype* dtype_named(const std::string& name) {
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& each) { return name == each.name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

size_t item_size(const std::string& dtype) {
  const Dtype* found = dtype_named(dtype);
  return found ? found->bytes : 0;
}

int onnx_type(const std::string& dtype) {
  const Dtype* found = dtype_named(dtype);
  return found ? found->onnx : 0;
}

}  // namespace spc
