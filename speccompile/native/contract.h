// Contract between the compiler and the runtime: graphs over named buffers, documented in speccompile/contract.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract_table.h"
#include "json.h"

namespace spc {

using Shape = std::vector<int64_t>;
using Widths = std::map<std::string, int64_t>;

int64_t product(const Shape& shape);

// Dimension: a number, or a named width ("window") plus an offset ("window+1").
struct Dimension {
  int64_t size = 0;
  std::string width;

  bool operator==(const Dimension& other) const { return size == other.size && width == other.width; }
  bool operator!=(const Dimension& other) const { return !(*this == other); }
  Json to_json() const;
};

// Input or output of a graph. role: one of role::kAll.
struct Tensor {
  std::string name, dtype, buffer, role;
  std::vector<Dimension> shape;
  bool is_batched = false;  // it has a line per row of a run, whichever rows these are: see `with_fixed_batch`

  // Throws Error(kBundle) for a missing width.
  Shape concrete_shape(const Widths& widths) const;
};

struct Graph {
  std::string name;
  std::vector<Tensor> inputs, outputs;

  // Parse a result of `Graph.to_json`, which the manifest has validated.
  static Graph from_json(const Json& data);
  const Tensor* input(const std::string& name) const;
  const Tensor* output(const std::string& name) const;
};

// Return the graphs with the symbolic batch size replaced by `rows`. Tensors whose shape begins with it are batched.
std::vector<Graph> with_fixed_batch(std::vector<Graph> graphs, int64_t rows);

// Return whether a buffer is a recurrent state, such as "target.conv.0" or "drafter.1.state.3": it has no entry per token, so
// no token may be read twice.
bool is_recurrent_state(const std::string& buffer);
// Return whether a buffer's name has a part between dots: "target.key.0" has "key".
bool has_part(const std::string& buffer, const std::string& part);
// Return whether a buffer holds keys or values, or their scales.
bool is_cache(const std::string& buffer);
// Return whether a buffer is a cache of the drafter's own layers: "drafter.key.0".
bool is_own_cache(const std::string& buffer);
// Return whether a buffer holds the scales of a quantized cache.
bool is_scale(const std::string& buffer);
// Return whether a component, of component::kAll, has recurrent states in these graphs of a round.
bool has_recurrent_states(const std::vector<Graph>& graphs, const std::string& part);

// Return the buffer to which an engine copies this output after the run, or "".
std::string copy_after_run(const Tensor& output);

// Return the description of a dtype, or null for an unknown one.
const Dtype* dtype_named(const std::string& name);
// Return the bytes of a number; 0 for an unknown dtype.
size_t item_size(const std::string& dtype);
// Return ONNX's number of a dtype (TensorProto.DataType, ONNXTensorElementDataType); 0 if there is none.
int onnx_type(const std::string& dtype);

}  // namespace spc
