// Batch slots: the sequence in each, and how much of it the target and the drafter have read (runtime/rounds/slots.py).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../text/text.h"
#include "engine.h"
#include "generation.h"

namespace spc {

// Content of a slot's caches after its sequence has left. tokens: committed tokens, with negative ids for rows of pictures;
// drafter_length: how many of them the drafter has read.
struct Committed {
  TokenIds tokens;
  int64_t drafter_length;
};

// Content of a slot, with the number of tokens that recurrent states have read: more where a sequence was cut. adapter: slot of
// the adapter with which they were read, 0 for the base; adapter_key: its key, "" for the base. written: see Slot.
// source: key of the source that they were read with, "" without an encoder.
struct SlotContent {
  TokenIds tokens;
  int64_t drafter_length, target_position, drafter_position, slot, adapter;
  std::string adapter_key;
  int64_t written;
  std::string source = "";
};

// Batch slot and its sequence, which the caller owns until the slot is released.
//
// Cache entries from `committed_length` on are never read: a run without this slot may write there. While a sequence decodes,
// all its tokens but the last are committed.
struct Slot {
  explicit Slot(int64_t index) : index(index) {}

  bool is_active() const { return sequence && sequence->is_active(); }
  // Return whether the slot takes part in the next round.
  bool decodes() const { return is_prefilled && is_active(); }
  // Begin a sequence: its first `reuse` tokens are committed, and the drafter has read the first `read` tokens.
  void admit(SequenceState& row, int64_t reuse, int64_t read, bool is_speculative, bool fixed);
  // Remove the sequence and return its committed tokens, without those cut at its end or at a stop string.
  Committed release();
  // Remove the sequence, if there is one, and forget what the caches hold. The sequence need not exist any more.
  void discard();

  int64_t index;
  int64_t committed_length = 0;   // tokens in the target's caches
  int64_t drafter_length = 0;     // tokens that the drafter has read; one with its own states lags while this is less
  // End of the positions whose rows have been written: behind the committed tokens there are rejected drafts, and rows of a
  // longer text. See RingReach.
  int64_t written = 0;
  SequenceState* sequence = nullptr;
  bool speculative = false;         // decoded with drafts
  bool fixed_draft_length = false;  // all drafts in every round, whatever they cost
  int64_t prefill_position = 0;     // of the next token to prefill
  bool is_prefilled = false;        // the prefill is complete: the slot decodes until its sequence ends
  bool has_drafts = false;          // drafts after its last token wait for verification
  bool lags_by_host_rounds = false;  // the drafter has missed only rounds with host drafts
  bool is_tracked = false;           // the draft-length policy knows of the sequence
};

using SlotList = std::vector<Slot*>;
using SlotStarts = std::vector<std::pair<Slot*, int64_t>>;  // position of the first token that a run reads
using SlotSpans = std::vector<std::pair<Slot*, Span>>;      // tokens of its sequence that a run reads

// Return the length of the common prefix of two texts.
int64_t common_prefix_length(const TokenIds& one, const TokenIds& other);
bool contains(const SlotList& slots, const Slot* slot);
// Return the smallest range of indices that contains all given slots, at least one.
Span slot_range(const SlotList& slots);
// Return groups of neighbouring slots with sequences of equal length, which prefill together without padding.
std::vector<SlotList> group_by_length(const SlotList& slots);

}  // namespace spc
