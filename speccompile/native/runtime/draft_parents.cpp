#include "draft_parents.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "../errors.h"

namespace spc {
namespace {

// Return the parents of a bundle's constant tree: with several draft models, of their merged trees (speccompile/tree.py, merged).
std::vector<int64_t> constant_parents(const Manifest& manifest) {
  std::vector<int64_t> chain(static_cast<size_t>(manifest.tokens + 1));
  std::iota(chain.begin(), chain.end(), -1);
  if (manifest.tree != tree::kStatic) return chain;
  const Json& drafter = manifest.json["plan"]["drafter"];
  const Json::List& parents = drafter["tree"]["parents"].list();
  std::vector<int64_t> depths(parents.size());
  for (size_t node = 1; node < parents.size(); ++node) {
    const int64_t parent = parents[node].integer();
    if (parent < 0 || parent >= static_cast<int64_t>(node)) throw Error(Kind::kBundle, "manifest.json: plan.drafter.tree.parents is no tree", "build the bundle again");
    depths[node] = depths[static_cast<size_t>(parent)] + 1;
  }
  std::vector<std::tuple<int64_t, size_t, size_t>> nodes;  // depth, tree, node
  const size_t trees = std::max<size_t>(1, drafter["models"].list().size());
  for (size_t tree = 0; tree < trees; ++tree)
    for (size_t node = 1; node < parents.size(); ++node) nodes.emplace_back(depths[node], tree, node);
  std::sort(nodes.begin(), nodes.end());
  std::vector<std::vector<int64_t>> places(trees, std::vector<int64_t>(parents.size()));
  std::vector<int64_t> found = {-1};
  for (const auto& [depth, tree, node] : nodes) {
    places[tree][node] = static_cast<int64_t>(found.size());
    found.push_back(places[tree][static_cast<size_t>(parents[node].integer())]);
  }
  return found;
}

}  // namespace

DraftParents::DraftParents(Engine& engine, const Manifest& manifest) : nodes_(manifest.tokens + 1) {
  if (manifest.tree == tree::kDynamic)
    made_ = engine.host_view(names::kParents, {manifest.batch_size, nodes_}).ints();
  else
    constant_ = constant_parents(manifest);
}

std::vector<int64_t> DraftParents::of(int64_t slot) const {
  return made_ ? std::vector<int64_t>(made_ + slot * nodes_, made_ + (slot + 1) * nodes_) : constant_;
}

}  // namespace spc
