// The contract between the compiler and the runtime: graphs over named buffers. speccompile/contract.py says what each is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "json.h"

namespace spc {

// Version of the contract. A runtime refuses bundles with another one.
constexpr int kContract = 3;

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

// An input or output of a graph. role: "io", "index", "state", "optional" or "link".
struct Tensor {
  std::string name, dtype, buffer, role;
  std::vector<Dimension> shape;

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

// Bytes of a number; 0 for a dtype that the runtime does not know.
size_t item_size(const std::string& dtype);
// ONNX's number of a dtype (TensorProto.DataType, ONNXTensorElementDataType); 0 where there is none.
int onnx_type(const std::string& dtype);

// What a draft gives -> the buffer in which the next round reads it.
struct Copied {
  const char* drafted;
  const char* buffer;
};
constexpr Copied kCopied[] = {{"next_window", "window"},
                              {"next_total", "n_total"},
                              {"next_parents", "parents"},
                              {"next_ids", "draft_ids"},
                              {"next_probs", "draft_probs"}};

}  // namespace spc
