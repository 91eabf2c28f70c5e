// Decode loop: admit sequences to batch slots, prefill them, and decode in rounds (runtime/rounds/decode_loop.py). It knows
// graphs, buffers and counts, but no drafting method.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bound_graphs.h"
#include "draft_controller.h"
#include "media_inputs.h"
#include "resume.h"
#include "rings.h"
#include "sampling_inputs.h"
#include "slot_state.h"
#include "source_encoder.h"
#include "slots.h"
#include "token_masks.h"
#include "stopwatch.h"

namespace spc {

// Loop that runs the batch slots over one engine's buffers, which it finds by name.
//
// A sequence is admitted to a slot, `prefill` reads its prompt, then every `decode` gives it tokens until it ends. If the engine
// supports batch slices, slots are prefilled alone, or together with prompts of equal length. Otherwise every run covers the
// whole batch, and a run that prefills is also a round of the decoding slots.
//
// Operations on slots throw Error(kDefect) if their order is wrong.
class DecodeLoop {
 public:
  // on_device: the engine runs on a GPU. graphs: the engine's graphs, which may differ from the manifest's.
  DecodeLoop(Engine& engine, const Manifest& manifest, const std::vector<Graph>& graphs, bool on_device);

  // Start the clock on this thread: before the first admission, and after an idle period.
  void start() { watch_.start(); }
  // Admit an active sequence to a free slot. adaptive: adapt the draft length wherever that changes no token. reuse: number of
  // its first tokens that the slot's caches hold, less than all of them. Return how many of these the target does not read
  // again: none where rings have lost what a token behind them reads. The sequence stays the caller's.
  int64_t admit(int64_t slot, SequenceState& row, bool speculative, bool adaptive, int64_t reuse = 0);
  // Prefill the next chunk of a slot's prompt, of at most `most` tokens. After the last chunk the sequence gets its first token.
  // Return the number of tokens read.
  int64_t prefill(int64_t slot, std::optional<int64_t> most = std::nullopt);
  // Return whether the prefill of a slot is complete, so that it decodes.
  bool is_prefilled(int64_t slot) const { return this->slot(slot).is_prefilled; }
  // Run one round over all decoding slots. Where a lagging drafter needs the target to catch up, the target reads the missed
  // tokens again.
  void decode();
  // Release a slot, whether its sequence has ended or not. Return what its caches hold until the next admission.
  Committed release(int64_t slot);
  // Record that the caches of a free slot hold `content`, for its next sequence.
  void hold(const SlotContent& content);
  // Return what the caches of a slot hold of a sequence that goes on.
  SlotContent content(int64_t slot) const;
  // Return how many tokens of what a free slot holds an admitted sequence goes on from: see `resume_slot`.
  int64_t resumable(const SlotContent& content, const SequenceState& row, bool speculative) {
    return resume_slot(free_slot(content.slot), row, content, drafting_, recurrent_, speculative);
  }
  // Copy the caches of slot `source` to a free slot. The sequence in `source` may go on.
  void copy(int64_t source, int64_t slot);
  // Record that the first slot of the batch holds what its sequence has until now, and end the batch.
  void leave();
  const Slot& slot(int64_t slot) const { return slots_.at(static_cast<size_t>(slot)); }

  // Begin a batch, a sequence in each slot; the next `step` prefills all of them. `rows` must outlive the batch. adaptive: as
  // for `admit`; if it could change a token of one sequence, all sequences take all drafts.
  void begin(Rows& rows, bool speculative, bool adaptive);
  // Prefill the batch, or run a round; do nothing once every sequence has ended.
  void step();

  DraftController& drafting() { return drafting_; }
  BoundGraphs& rounds() { return rounds_; }
  Seconds seconds;
  // True if a sequence may continue from tokens that another has left; recurrent states, which sum them up, prevent it.
  const bool supports_prefix_reuse;
  // Content of a slot's caches, of the sequence that left last; none if they may have changed.
  std::optional<SlotContent> left;
  // Content of the first slot's caches for the next batch of one sequence.
  std::optional<SlotContent> resume;
  // Slot -> content of its caches for the next batch of several sequences.
  std::map<int64_t, SlotContent> starts;
  // Slot -> number of prompt tokens that its sequence, of the latest batch, did not read.
  std::map<int64_t, int64_t> reused;
  bool has_sources() const { return sources_ != nullptr; }
  // Encode the sources of all later sequences, also those that a slot holds. Called between two batches.
  void forget_sources() {
    if (sources_) sources_->forget();
    left.reset();
    resume.reset();
  }
  const SlotStates& states() const { return states_; }
  const RingReach& rings() const { return rings_; }
  // Return how many of the first `count` tokens that a slot's caches hold serve another sequence: all or none.
  int64_t usable(int64_t slot, int64_t count) const {
    return supports_prefix_reuse && rings_.holds(slots_.at(static_cast<size_t>(slot)).written, count) ? count : 0;
  }
  // Return whether of caches that hold `length` tokens the first `part` serve a sequence. written: see Slot.
  bool serves(int64_t length, int64_t written, int64_t part) const {
    return supports_prefix_reuse ? rings_.holds(written, part) : part == length;
  }

 private:
  std::map<int64_t, int64_t> take_resumed(const Rows& rows, bool speculative);
  SlotList active_slots() {
    SlotList found;
    for (Slot& slot : slots_)
      if (slot.is_active()) found.push_back(&slot);
    return found;
  }
  SlotList decoding();
  Slot& free_slot(int64_t slot);
  void discard(Slot& slot);
  void note_and_discard(Slot& slot);
  // Encode the source of a slot's sequence, unless the slot holds it.
  void encode_source(const Slot& slot) {
    if (sources_) sources_->encode(slot.index, *slot.sequence->source);
  }
  void prefill_slots(const SlotList& slots, bool again);
  void run(const SlotSpans& parts, const SlotList& decoding, bool again);
  VerifyPass& forward(int64_t window, int64_t logit_rows, const SlotStarts& begin, const SlotList& taking, bool fused, bool fed, int64_t media);
  void note_written(const VerifyPass& forward);
  void write_inputs(VerifyPass& forward, const SlotSpans& parts, const SlotList& decoding);
  double verify(VerifyPass& forward, const SlotList& taking);
  void commit(VerifyPass& forward, const SlotSpans& parts, const SlotStarts& begin, const SlotList& taking);

  BoundGraphs rounds_;
  Stopwatch watch_;
  DraftController drafting_;
  std::optional<SamplingInputs> sampler_;
  std::optional<TokenMasks> masks_;
  std::optional<MediaInputs> media_;
  const std::unique_ptr<SourceEncoder> sources_;  // null without an encoder
  int64_t* adapters_ = nullptr;  // slot of each row's adapter; null in a bundle without
  const SlotStates states_;
  const Recurrent recurrent_;
  const RingReach rings_;
  std::vector<Slot> slots_;
  SlotList batch_;       // slots of the batch
  bool is_alone_ = false;  // it has one sequence
  bool is_new_ = false;    // it has not been prefilled
};

}  // namespace spc
