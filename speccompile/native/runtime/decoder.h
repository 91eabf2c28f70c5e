// Buffers of one engine and what decodes in them: what a session owns, and a service.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "adapters.h"
#include "bundle.h"
#include "decode_loop.h"
#include "drafter_state.h"
#include "round_times.h"
#include "saved_sessions.h"
#include "shipped_prefixes.h"
#include "sources.h"

namespace spc {

struct Decoder {
  explicit Decoder(std::shared_ptr<const Bundle> opened);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Set a proposer that replaces the bundle's own index; empty restores the index. Throws Error(kUsage) if only graphs draft in
  // this bundle.
  void set_proposer(Proposer proposer);
  // Return whether rounds draft unless a request says otherwise.
  bool can_draft() const { return bundle->speculative() || has_proposer; }
  // Return a request's checked options, and the sequences of all its prompts, those of the first prompt first. side_by_side: whether all
  // sequences need a batch slot at once. Throws Error(kPrompt) for an invalid prompt or source, Error(kUsage) for an invalid option and for
  // an adapter that is not loaded.
  std::pair<Options, Rows> make_sequences(const Request& request, bool side_by_side) const;

  const std::shared_ptr<const Bundle> bundle;
  const std::unique_ptr<Engine> engine;
  const PersistentState kept;
  Adapters adapters;
  DecodeLoop loop;
  SavedSessions saved;
  ShippedPrefixes prefixes;
  RecordedTimes times;
  bool has_proposer = false;

 private:
  Rows sequences_of(const Request& request, const std::vector<SourcePtr>& sources, const Options& options) const;
};

}  // namespace spc
