#include "token_masks.h"

#include <algorithm>
#include <cstring>

#include "../audio/rules.h"
#include "../constraints/matcher.h"
#include "../errors.h"
#include "sampling_inputs.h"

namespace spc {
TokenMasks::TokenMasks(Engine& engine, const Manifest& manifest) : engine_(engine), manifest_(manifest), parents_(engine, manifest) {
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
    const std::vector<int64_t> parents = parents_.of(slot->index);
    uint8_t* const own = data + slot->index * rows * width;
    const size_t known = std::min(count, parents.size() - 1);
    if (slot->sequence->rules) slot->sequence->rules->write(own, rows, drafts, known, parents);
    if (slot->sequence->matcher) slot->sequence->matcher->write(own, rows, drafts, known, parents);
  }
}

}  // namespace spc
