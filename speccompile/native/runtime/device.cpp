#include "device.h"

#include <algorithm>
#include <cstring>

#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

bool stays_on_device(const Tensor& tensor) { return tensor.role == role::kState || tensor.role == role::kLink; }

bool has_named_width(const Tensor& tensor) {
  return std::any_of(tensor.shape.begin(), tensor.shape.end(), [](const Dimension& each) { return !each.width.empty(); });
}

}  // namespace

std::string Binding::widths() const {
  std::vector<std::string> shapes;
  for (const BoundTensor& each : inputs)
    if (has_named_width(*each.tensor)) shapes.push_back(each.tensor->name + " " + list_of(each.shape).repr());
  return graph + " at " + (shapes.empty() ? "its only shape" : joined(shapes));
}

DeviceEngine::DeviceEngine(std::shared_ptr<Device> device, EngineEntry entry)
    : device_(std::move(device)), entry_(std::move(entry)), dtypes_(buffer_dtypes(entry_.graphs)), scratch_(scratch_buffers(entry_.graphs)) {
  for (const Graph& graph : entry_.graphs)
    for (const std::vector<Tensor>* tensors : {&graph.inputs, &graph.outputs})
      for (const Tensor& tensor : *tensors)
        if (stays_on_device(tensor)) device_only_.insert(tensor.buffer);
}

Array DeviceEngine::host_view(const std::string& buffer, const Shape& shape) {
  return device_only_.count(buffer) ? snapshot(buffer, shape) : mirror(buffer, shape);
}

void DeviceEngine::write_state(const std::string& buffer, const Shape& shape, const void* values) {
  const size_t bytes = size(buffer, shape);
  const std::shared_ptr<void> host = device_->pinned(bytes);
  std::memcpy(host.get(), values, bytes);
  device_->upload(host.get(), on_device(buffer, shape), bytes);
  device_->synchronize();
}

Run DeviceEngine::bind(const std::string& graph, const Widths& widths, bool logits, std::optional<Span>) {
  const auto is_named = [&](const Graph& each) { return each.name == graph; };
  const auto described = std::find_if(entry_.graphs.begin(), entry_.graphs.end(), is_named);
  if (described == entry_.graphs.end()) throw Error(Kind::kDefect, "engine " + entry_.name + " has no graph " + graph);
  std::vector<Shape> shapes;
  for (const Tensor& tensor : described->inputs) shapes.push_back(tensor.concrete_shape(widths));
  const auto key = std::make_tuple(graph, std::move(shapes), logits);
  const auto known = runs_.find(key);
  if (known != runs_.end()) return known->second.second;
  auto bound = std::make_unique<const Binding>(binding(*described, widths, logits));
  Run run = prepare(*bound);
  return runs_.emplace(key, std::make_pair(std::move(bound), std::move(run))).first->second.second;
}

Binding DeviceEngine::binding(const Graph& graph, const Widths& widths, bool logits) {
  Binding found;
  found.graph = graph.name;
  const auto bound = [&](const Tensor& tensor) {
    Shape shape = tensor.concrete_shape(widths);
    void* address = on_device(tensor.buffer, shape);
    return BoundTensor{&tensor, std::move(shape), address};
  };
  for (const Tensor& tensor : graph.inputs) {
    const BoundTensor& each = found.inputs.emplace_back(bound(tensor));
    if (tensor.role == role::kIndex) fill_iota(tensor.buffer, each.shape, each.address);
    if (tensor.role == role::kIo) found.uploads.push_back({mirror(tensor.buffer, each.shape), each.address});
  }
  for (const Tensor& tensor : graph.outputs) {
    if (tensor.role == role::kOptional && !(logits && tensor.name == names::kLogits)) continue;
    const BoundTensor& each = found.outputs.emplace_back(bound(tensor));
    const std::string target = copy_after_run(tensor);
    if (!target.empty()) found.copies.push_back({each.address, on_device(target, each.shape), size(tensor.buffer, each.shape)});
    if (!stays_on_device(tensor)) found.downloads.push_back({mirror(tensor.buffer, each.shape), each.address});
  }
  return found;
}

void DeviceEngine::upload(const Binding& binding) {
  for (const Transfer& each : binding.uploads) device_->upload(each.host.data, each.address, each.host.bytes());
}

void DeviceEngine::download(const Binding& binding) {
  for (const DeviceCopy& each : binding.copies) device_->copy(each.from, each.to, each.bytes);
  for (const Transfer& each : binding.downloads) device_->download(each.address, each.host.data, each.host.bytes());
}

void DeviceEngine::check_stopped() const {
  if (stopped_) refuse_cancelled();
}

void DeviceEngine::clear() {
  for (const auto& [key, allocation] : memory_)
    if (!indices_.count(key)) device_->zero(allocation.memory.get(), allocation.bytes);
  device_->synchronize();
  for (const auto& [key, allocation] : mirrors_)
    if (!indices_.count(key)) std::memset(allocation.memory.get(), 0, allocation.bytes);
}

void* DeviceEngine::on_device(const std::string& buffer, const Shape& shape) {
  const auto known = memory_.find(key_of(buffer, shape));
  if (known != memory_.end()) return known->second.memory.get();
  const size_t bytes = allocated_bytes(buffer, shape);
  return memory_.emplace(key_of(buffer, shape), Allocation{device_->allocate(bytes), bytes}).first->second.memory.get();
}

Array DeviceEngine::mirror(const std::string& buffer, const Shape& shape) {
  auto known = mirrors_.find(key_of(buffer, shape));
  if (known == mirrors_.end()) {
    const size_t bytes = allocated_bytes(buffer, shape);
    known = mirrors_.emplace(key_of(buffer, shape), Allocation{device_->pinned(bytes), bytes}).first;
  }
  return {known->second.memory.get(), shape, dtype_of(dtypes_, buffer)};
}

Array DeviceEngine::snapshot(const std::string& buffer, const Shape& shape) {
  std::vector<char>& host = snapshots_[{buffer, shape}];
  host.resize(size(buffer, shape));
  device_->download(on_device(buffer, shape), host.data(), host.size());
  device_->synchronize();
  return {host.data(), shape, dtype_of(dtypes_, buffer)};
}

void DeviceEngine::fill_iota(const std::string& buffer, const Shape& shape, void* address) {
  if (indices_.count({buffer, shape})) return;
  const Array numbers = mirror(buffer, shape);
  for (size_t i = 0; i < numbers.count(); ++i) numbers.ints()[i] = static_cast<int64_t>(i);
  device_->upload(numbers.data, address, numbers.bytes());
  indices_.emplace(buffer, shape);
}

size_t DeviceEngine::size(const std::string& buffer, const Shape& shape) const {
  return static_cast<size_t>(product(shape)) * item_size(dtype_of(dtypes_, buffer));
}

size_t DeviceEngine::allocated_bytes(const std::string& buffer, const Shape& shape) const {
  return scratch_.count(buffer) ? scratch_size(size(buffer, shape)) : size(buffer, shape);
}

DeviceEngine::BufferKey DeviceEngine::key_of(const std::string& buffer, const Shape& shape) const {
  return {buffer, scratch_.count(buffer) ? Shape{static_cast<int64_t>(allocated_bytes(buffer, shape))} : shape};
}

bool RepeatDetector::again(const Binding& binding) {
  const Binding*& last = last_[binding.graph];
  return std::exchange(last, &binding) == &binding;
}

}  // namespace spc
