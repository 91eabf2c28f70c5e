#include "votes.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

namespace spc {
namespace {

// A candidate for the next draft. rows: the continuations that begin with it and the drafts before it.
struct Waiting {
  size_t depth;
  int64_t parent;
  uint32_t token;
  std::vector<const TokenRow*> rows;

  // Return whether the other comes first: a priority queue gives its largest.
  bool operator<(const Waiting& other) const {
    if (rows.size() != other.rows.size()) return rows.size() < other.rows.size();
    if (depth != other.depth) return depth > other.depth;
    if (parent != other.parent) return parent > other.parent;
    return token > other.token;
  }
};

// Return the nodes that follow a draft, or the text; branching: number of the best ones, 0 for all.
std::vector<Waiting> children(const std::vector<const TokenRow*>& rows, int64_t parent, size_t depth, size_t branching) {
  std::map<uint32_t, std::vector<const TokenRow*>> below;
  for (const TokenRow* const row : rows)
    if (row->size() > depth) below[(*row)[depth]].push_back(row);
  std::vector<Waiting> found;
  for (auto& [token, its] : below) found.push_back({depth, parent, token, std::move(its)});
  std::sort(found.begin(), found.end(), [](const Waiting& one, const Waiting& other) { return other < one; });
  if (branching && branching < found.size()) found.erase(found.begin() + static_cast<std::ptrdiff_t>(branching), found.end());
  return found;
}

}  // namespace

Drafts vote(const std::vector<TokenRow>& rows, size_t most, size_t branching) {
  std::vector<const TokenRow*> all;
  for (const TokenRow& row : rows) all.push_back(&row);
  std::priority_queue<Waiting> waiting;
  const auto grow = [&](const std::vector<const TokenRow*>& its, int64_t parent, size_t depth) {
    for (Waiting& child : children(its, parent, depth, branching)) waiting.push(std::move(child));
  };
  Drafts drafts;
  for (grow(all, kBehindText, 0); !waiting.empty() && drafts.tokens.size() < most;) {
    const Waiting best = waiting.top();
    waiting.pop();
    drafts.tokens.push_back(best.token);
    drafts.parents.push_back(best.parent);
    grow(best.rows, static_cast<int64_t>(drafts.tokens.size()) - 1, best.depth + 1);
  }
  return drafts;
}

}  // namespace spc
