// Prefixes that a bundle ships: session files that the build has made of texts with which many prompts begin
// (runtime/shipped_prefixes.py). A prompt goes on from the longest of them without being asked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "saved_sessions.h"

namespace spc {

// Return engine -> names of its prefixes, in order.
std::map<std::string, std::vector<std::string>> prefix_names(const Hashes& hashes);

// Prefixes of one engine of an open bundle, to be restored into free slots.
class ShippedPrefixes {
 public:
  // loop: says which parts of a prefix may be used: recurrent states and rings cannot be cut anywhere. A prefix that does not fit
  // this machine is passed over with a note.
  ShippedPrefixes(const Bundle& bundle, SavedSessions& sessions, const DecodeLoop& loop);
  // Restore the longest prefix of a prompt into a free slot. Return what the slot holds then; nullopt, with the slot unchanged,
  // if it already holds `held` tokens of the prompt and no prefix has enough more.
  std::optional<SlotContent> restore(const TokenIds& prompt, int64_t slot, int64_t held) const;
  // Return what the next sequence that is generated alone goes on from: `resume`, or a longer prefix, which is then in the slot.
  std::optional<SlotContent> resume(const TokenIds& prompt, std::optional<SlotContent> resume) const;

 private:
  SavedSessions& sessions_;
  const DecodeLoop& loop_;
  std::vector<std::pair<std::string, SavedSessions::Start>> starts_;  // by path
};

}  // namespace spc
