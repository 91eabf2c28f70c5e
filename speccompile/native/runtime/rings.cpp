#include "rings.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "../words.h"

namespace spc {

RingReach::RingReach(const Manifest& manifest) {
  std::map<std::string, int64_t> rows;
  for (const Graph& graph : manifest.graphs)
    for (const Tensor& tensor : graph.inputs)
      if (manifest.ring_window(tensor.buffer)) rows[tensor.buffer] = tensor.shape[2].size;
  if (rows.empty()) return;
  room_ = std::numeric_limits<int64_t>::max();
  std::set<int64_t> sizes;
  for (const auto& [buffer, size] : rows) {
    sizes.insert(size);
    room_ = std::min(room_, size - manifest.ring_window(buffer));
  }
  sizes_.assign(sizes.begin(), sizes.end());
}

bool RingReach::holds(int64_t written, int64_t position) const {
  return sizes_.empty() || position == 0 || written <= sizes_.front() || position >= written - room_;
}

std::string RingReach::words() const {
  if (sizes_.empty()) return kFullCaches;
  return "ring of " + comma_separated(sizes_, [](int64_t size) { return std::to_string(size); }) + " rows";
}

}  // namespace spc
