// Host drafts: proposers outside the graphs, such as indexes (runtime/rounds/host_drafts.py).
//
// The target's graph reads `window`, `n_total` and, if it verifies trees, `parents`. A drafter's graph writes them, or the
// host: a proposer then supplies the drafts of the next round before it begins. Drafts cannot change the output.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "../bundle/manifest.h"
#include "../index/votes.h"
#include "../text/text.h"

namespace spc {

// Function that returns drafts after a text, the best first, in any number, also none. An exception ends the step.
using Proposer = std::function<Drafts(const TokenIds& text)>;

// Return whether rounds have drafts, but no graph makes them.
bool needs_proposer(const Manifest& manifest);

// Return the plan's gate, by which the host's drafts replace those of a graph; null without one. The policy of the gate's
// index decides when it opens.
const Json& gate_config(const Manifest& manifest);

// Proposer, and the conversion of its drafts to a bundle's window.
class HostDrafts {
 public:
  // proposer: empty for none.
  HostDrafts(Proposer proposer, const Manifest& manifest);

  // Write the text's last token and at most `most` drafts to `window`, int64 [N + 1]; if the bundle verifies trees, also their
  // parents to `parents`, int64 [N + 1], else null. Return the number of drafts.
  //
  // Drafts deeper than the bundle's tree are omitted. Throws Error(kUsage) for drafts that are invalid in this bundle.
  int64_t write(const TokenIds& text, int64_t* window, int64_t* parents, int64_t most) const;

 private:
  void check(const Drafts& drafts) const;

  Proposer proposer_;
  int64_t vocabulary_, depth_;
  bool is_chain_;
};

}  // namespace spc
