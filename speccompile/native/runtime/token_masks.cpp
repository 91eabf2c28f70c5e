#include "token_masks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "../audio/rules.h"
#include "../constraints/matcher.h"
#include "../errors.h"
#include "sampling_inputs.h"

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

TokenMasks::TokenMasks(Engine& engine, const Manifest& manifest) : engine_(engine), manifest_(manifest) {
  if (manifest.tree == tree::kDynamic)
    made_ = engine.host_view(names::kParents, {manifest.batch_size, manifest.tokens + 1}).ints();
  else
    constant_ = constant_parents(manifest);
  if (has_input(manifest, names::kTimestamps)) timed_ = static_cast<uint8_t*>(engine.host_view(names::kTimestamps, {manifest.batch_size}).data);
}

int64_t TokenMasks::width(const SlotList& taking) const {
  const auto is_constrained = [](const Slot* slot) { return slot->is_active() && (slot->sequence->matcher || slot->sequence->rules); };
  return std::any_of(taking.begin(), taking.end(), is_constrained) ? manifest_.vocabulary_size : 1;
}

void TokenMasks::write(const VerifyPass& forward, const BoundGraphs& rounds, const SlotList& taking) const {
  const int64_t rows = forward.key.logit_rows, width = forward.key.allowed;
  const Array allowed = engine_.host_view(names::kAllowed, {manifest_.batch_size, rows, width});
  auto* const data = static_cast<uint8_t*>(allowed.data);
  std::memset(data, 1, allowed.bytes());
  for (const Slot* const slot : taking)
    if (timed_) timed_[slot->index] = slot->sequence->rules && slot->sequence->rules->writes_times();
  if (width == 1) return;
  for (const Slot* const slot : taking) {
    if (!slot->is_active() || !(slot->sequence->matcher || slot->sequence->rules)) continue;
    const int64_t room = forward.window.shape[1];  // a drafter's graph may have written wrong counts
    const int64_t given = std::clamp<int64_t>(rounds.n_given[slot->index], 0, room);
    const int64_t total = std::clamp<int64_t>(rounds.n_total[slot->index], given, room);
    const size_t count = static_cast<size_t>(std::min(total - given, manifest_.tokens));
    const int64_t* const drafts = forward.window.ints() + slot->index * forward.window.shape[1] + given;
    std::vector<int64_t> parents = constant_;
    if (made_) parents.assign(made_ + slot->index * (manifest_.tokens + 1), made_ + (slot->index + 1) * (manifest_.tokens + 1));
    uint8_t* const own = data + slot->index * rows * width;
    const size_t known = std::min(count, parents.size() - 1);
    if (slot->sequence->rules) slot->sequence->rules->write(own, rows, drafts, known, parents);
    if (slot->sequence->matcher) slot->sequence->matcher->write(own, rows, drafts, known, parents);
  }
}

}  // namespace spc
