#include "slot_state.h"

#include <cstring>

namespace spc {

SlotStateCopier::SlotStateCopier(Engine& engine, const std::vector<Graph>& graphs) : engine_(engine) {
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.inputs)
      if (tensor.role == role::kState && tensor.buffer.rfind(kPersistentPrefix, 0) != 0) shapes_[tensor.buffer] = tensor.concrete_shape({});
}

void SlotStateCopier::copy(int64_t source, int64_t slot) const {
  for (const auto& [buffer, shape] : shapes_) {
    const Array values = engine_.host_view(buffer, shape);
    const size_t line = values.bytes() / static_cast<size_t>(shape.front());
    char* const lines = static_cast<char*>(values.data);
    std::memmove(lines + static_cast<size_t>(slot) * line, lines + static_cast<size_t>(source) * line, line);
    engine_.write_state(buffer, shape, values.data);  // the view may be a copy of a device buffer
  }
}

}  // namespace spc
