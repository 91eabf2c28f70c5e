// The contract between the compiler and the runtime: graphs over named buffers. speccompile/contract.py says what each is.
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

// A size: a number, or a width by its name ("window") and what is added ("window+1").
struct Dimension {
  int64_t size = 0;
  std::string width;

  bool operator==(const Dimension& other) const { return size == other.size && width == other.width; }
  bool operator!=(const Dimension& other) const { return !(*this == other); }
  Json to_json() const;
};

// An input or output of a graph. role: one of role::kAll.
struct Tensor {
  std::string name, dtype, buffer, role;
  std::vector<Dimension> shape;
  bool is_batched = false;  // it has a line for each row of a run, whichever rows these are: see `with_batch`

  // Throws Error(kBundle) for a width that is not given.
  Shape concrete_shape(const Widths& widths) const;
};

struct Graph {
  std::string name;
  std::vector<Tensor> inputs, outputs;

  // From what `Graph.to_json` wrote, which the manifest has checked.
  static Graph from_json(const Json& data);
  const Tensor* input(const std::string& name) const;
  const Tensor* output(const std::string& name) const;
};

// The graphs with the number of rows in the place of its name. What begins with that name has a line for each row.
std::vector<Graph> with_fixed_batch(std::vector<Graph> graphs, int64_t rows);

// Whether a buffer is a state that is carried from token to token, "target.conv.0", "drafter.1.state.3": it has no row for every
// token, so a token must not be given to it twice.
bool is_recurrent_state(const std::string& buffer);
// Whether a part, of component::kAll, has such states in these graphs of a round.
bool has_recurrent_states(const std::vector<Graph>& graphs, const std::string& part);

// The buffer into which an engine copies this one when the graph has run; "" where it does not.
std::string copy_after_run(const Tensor& output);

// What is said of a dtype; null for one that the runtime does not know.
const Dtype* dtype_named(const std::string& name);
// Bytes of a number; 0 for a dtype that the runtime does not know.
size_t item_size(const std::string& dtype);
// ONNX's number of a dtype (TensorProto.DataType, ONNXTensorElementDataType); 0 where there is none.
int onnx_type(const std::string& dtype);

}  // namespace spc
