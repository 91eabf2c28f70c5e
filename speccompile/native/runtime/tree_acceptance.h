// Widths of windows that may be verified, and what windows of a tree accept by their width (runtime/rounds/tree_acceptance.py).
//
// Dynamic trees are ordered best first, with every node after its parent, so that the first nodes of a window are a tree as
// well: the best one of that size. A round with a window shows what all narrower ones would have accepted.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "../bundle/manifest.h"

namespace spc {

// Return the widths of windows of a tree, ascending: of all of its drafts, of half of them, of a quarter, ..
std::vector<int> tree_widths(int full);

// Return what `SpeedupModel` takes: the widths of windows that may be verified, and what each accepts. On a GPU narrow windows cost
// as much as wide ones.
std::map<int, int> offered_widths(const Manifest& manifest, bool is_cpu);

// Append how many of the accepted nodes, numbers in a window, windows would have accepted: of each width offered, from the narrowest
// with drafts up to `width`.
void append_accepted_by_width(std::vector<int>& counts, const int64_t* nodes, int64_t count, const std::map<int, int>& offered, int width);

}  // namespace spc
