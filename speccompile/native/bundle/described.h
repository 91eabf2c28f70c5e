// Words of messages about a manifest's graphs and tensors, and the refusal of one that contradicts itself.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../errors.h"
#include "../words.h"
#include "manifest.h"

namespace spc {

using Words = std::vector<std::string>;

[[noreturn]] inline void refuse(const std::string& problem) { throw Error(Kind::kBundle, problem, "build the bundle again with this speccompile"); }

inline Words sizes_of(const Tensor& tensor) {
  Words found;
  for (const Dimension& each : tensor.shape) found.push_back(each.width.empty() ? std::to_string(each.size) : each.width);
  return found;
}

inline std::string words_of(const std::string& dtype, const Words& sizes, const std::string& role, const std::string& buffer, const std::string& name) {
  return dtype + " [" + joined(sizes, ", ") + "] (" + role + ")" + (buffer == name ? "" : " in " + python_repr(buffer));
}

inline std::string words_of(const Tensor& tensor) { return words_of(tensor.dtype, sizes_of(tensor), tensor.role, tensor.buffer, tensor.name); }

inline Words sorted(Words words) {
  std::sort(words.begin(), words.end());
  return words;
}

inline Words names_of(const std::vector<Graph>& graphs) {
  Words names;
  for (const Graph& graph : graphs) names.push_back(graph.name);
  return names;
}

}  // namespace spc
