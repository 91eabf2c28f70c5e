// Buffers of one engine and what decodes in them: what a session owns, and a service.
#pragma once

#include <memory>

#include "adapters.h"
#include "bundle.h"
#include "decode_loop.h"
#include "drafter_state.h"
#include "round_times.h"
#include "saved_sessions.h"
#include "shipped_prefixes.h"

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
  // Return the sequences of all prompts of a request, those of the first prompt first. options: its checked ones. Throws
  // Error(kPrompt) for an invalid prompt, Error(kUsage) for an adapter that is not loaded.
  Rows make_sequences(const Request& request, const Options& options) const;

  const std::shared_ptr<const Bundle> bundle;
  const std::unique_ptr<Engine> engine;
  const PersistentState kept;
  Adapters adapters;
  DecodeLoop loop;
  SavedSessions saved;
  ShippedPrefixes prefixes;
  RecordedTimes times;
  bool has_proposer = false;
};

}  // namespace spc
