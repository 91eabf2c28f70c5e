// Drafts that the host gives: the door for indexes outside the graphs (runtime/proposals.py).
//
// The target's graph reads `window`, `n_total` and, where it judges trees, `parents`: a drafter's graph writes them, or the
// host does. Then a proposer says what the drafts of the next round are, before it begins. Drafts are guesses: none can change
// a token.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "../bundle/manifest.h"
#include "../index/votes.h"
#include "../text/text.h"

namespace spc {

// The drafts behind a text, the best first: any number of them, or none. What it throws ends the step.
using Proposer = std::function<Drafts(const TokenIds& text)>;

// Whether a round has drafts, and no graph that makes them.
bool needs_proposer(const Manifest& manifest);

// The gate by which the host's drafts stand in the place of a graph's, as the plan has it; null where there is none. What it
// lets through is for the policy of its index to say.
const Json& gate_config(const Manifest& manifest);

// A proposer, and what of its answers a bundle can verify.
class HostDrafts {
 public:
  // proposer: empty where nobody proposes.
  HostDrafts(Proposer proposer, const Manifest& manifest);

  // Put at most so many drafts behind a text into `window`, int64 [N + 1], its last token first; where the bundle judges trees,
  // their parents into int64 [N + 1], which is null elsewhere. Returns how many.
  //
  // Drafts that stand deeper than the bundle's tree are left out. Throws Error(kUsage) for an answer that is no draft of this
  // bundle.
  int64_t write(const TokenIds& text, int64_t* window, int64_t* parents, int64_t most) const;

 private:
  void check(const Drafts& drafts) const;

  Proposer proposer_;
  int64_t vocabulary_, depth_;
  bool is_chain_;
};

}  // namespace spc
