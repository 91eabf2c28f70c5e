#include "tree_acceptance.h"

#include <algorithm>

#include "../contract_table.h"

namespace spc {

std::vector<int> tree_widths(int full) {
  std::vector<int> found{full};
  for (int drafts = (full - 1) / 2; drafts >= kLeastNodes; drafts /= 2) found.push_back(1 + drafts);
  std::reverse(found.begin(), found.end());
  return found;
}

std::map<int, int> offered_widths(const Manifest& manifest, bool is_cpu) {
  const int full = static_cast<int>(manifest.tokens) + 1;
  std::map<int, int> found{{1, 0}};
  if (is_cpu && manifest.is_chain()) {
    for (int width = 2; width <= full; ++width) found[width] = width - 1;
  } else if (is_cpu && manifest.tree == tree::kDynamic) {
    for (const int width : tree_widths(full)) found.emplace(width, static_cast<int>(found.size()));
  } else {
    found[full] = static_cast<int>(manifest.depth);
  }
  return found;
}

void append_accepted_by_width(std::vector<int>& counts, const int64_t* nodes, int64_t count, const std::map<int, int>& offered, int width) {
  for (const auto& [each, place] : offered) {
    const int64_t limit = each;
    if (place && each <= width) counts.push_back(static_cast<int>(std::count_if(nodes, nodes + count, [&](int64_t node) { return node < limit; })));
  }
}

}  // namespace spc
