// Votes over the continuations of the occurrences: the most frequent prefixes are the drafts (speccompile/index/votes.py).
#pragma once

#include <cstdint>
#include <vector>

#include "../contract_table.h"
#include "search.h"

namespace spc {

// Tokens, and of each its parent: the number of a draft before it, or kBehindText.
struct Drafts {
  std::vector<int64_t> tokens, parents;
};

// The `most` prefixes of the rows that are shared by most of them, as a tree. branching: the most, and best, that follow one;
// 1 for a chain, 0 for any number.
//
// They come in this order: more rows; of as many, less deep; of as deep, the earlier parent; of one parent, the smaller
// token. So every draft comes behind its parent, and any number of the first ones is a tree too.
Drafts vote(const std::vector<TokenRow>& rows, size_t most, size_t branching);

}  // namespace spc
