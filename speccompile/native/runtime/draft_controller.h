// Draft controller: fill the next window with drafts up to the draft length, or with the pending token alone
// (runtime/rounds/draft_controller.py).
//
// While a sequence is not drafted for, its drafter lags. Before it drafts again, it reads the tokens that it has missed: alone,
// from the tokens that the host has; or, if it is fused with the target or needs more than tokens, together with the target,
// which reads the same tokens again and commits the same cache entries. A target with recurrent states cannot read a token
// twice: a drafter that needs it keeps reading while drafting is paused.
//
// All slots share one window width, chosen for all of them together. A sequence whose drafts are sampled always takes all
// drafts, because its tokens depend on their number; while there is one, the other slots take all drafts too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adaptive_length.h"
#include "bound_graphs.h"
#include "host_drafts.h"
#include "slots.h"
#include "stopwatch.h"

namespace spc {

// Seconds of a generation by phase.
struct Seconds {
  double prefill = 0, verify = 0, draft = 0;
};

// Decides the next window of every slot, and tracks what the drafter has read.
class DraftController {
 public:
  // seconds: sums to which drafting adds its time. watch: the loop's. on_device: the engine runs on a GPU, where a narrow
  // window costs as much as a wide one.
  DraftController(BoundGraphs& rounds, Seconds& seconds, Stopwatch& watch, bool on_device);

  // Set the proposer, which drafts if no graph does, or replaces the graph's drafts whenever it has any; empty for none.
  void set_proposer(Proposer proposer);
  // Admit a sequence whose first `reuse` tokens the slot's caches hold. others: slots with a sequence that has not ended.
  void admit(Slot& slot, SequenceState& row, int64_t reuse, bool speculative, bool adaptive, SlotList others);
  // Return how many of `reuse` tokens the drafter keeps: it paired the last with a successor that may differ.
  int64_t kept_length(const Slot& slot, int64_t reuse) const {
    return has_own_cache_ ? std::min(slot.drafter_length, std::max<int64_t>(0, reuse - pairs_)) : reuse;
  }
  // Return whether tokens are independent of the draft length. With sampled drafts, timing must not choose it.
  bool allows_adaptive_length(const SequenceState& row) const { return !draws_ || row.sampling.temperature == 0; }
  // Return the maximum number of tokens of the next window for these slots; 1 means no drafts.
  int64_t window_limit(const SlotList& present);
  // Return the width of the next window, which serves all slots in `decoding`.
  int64_t width(const SlotList& decoding, int64_t wanted) const;
  // Write the next windows of `decoding`, of at most `width` tokens, into a run's input int64 [B, W].
  void write_window(const Array& window, int64_t width, const SlotList& decoding);
  // Return whether the next run also drafts.
  bool runs_fused(const SlotStarts& begin, int64_t wanted) const;
  // Return the slots whose lagging drafter needs the target: the caller re-runs it over the missed tokens.
  SlotList slots_to_reread(const SlotList& decoding, const SlotList& present);
  // Record a target run that began at these positions: a round of `decoding`, or a part of a prefill.
  void record_verify(double seconds, const SlotStarts& begin, const SlotList& decoding, const RunInfo& run);
  // Make the next windows after a run that began at `begin` and read `fed` tokens of prompts. taking: slots that got a token;
  // the other slots are in the middle of their prompt. Counts are still those of the run.
  void prepare_next_windows(VerifyPass& forward, const SlotStarts& begin, const SlotList& taking, const SlotList& present, int64_t fed);

  // Number of tokens that consecutive prompt chunks share. After a chunk, the target's prediction takes the position of the
  // next token: a drafter that pairs features with the next token would keep a wrong cache entry.
  int64_t overlap = 0;
  // True if, in the middle of a prompt, the true next token replaces that prediction before the drafter runs.
  bool is_told = false;
  // True if the drafter needs tokens only, no features of the target.
  bool catches_up_alone = false;
  // True if the draft length adapts where that changes no token.
  bool may_adapt = false;
  // Widths of windows that the policy chooses from, see `offered_widths`.
  std::map<int, int> widths;
  std::unique_ptr<DraftLengthPolicy> policy;

 private:
  bool has_read_all(const Slot& slot, int64_t start) const { return slot.drafter_length >= start || !has_own_cache_; }
  bool reads_while_paused(const SlotStarts& begin) const;
  int64_t next_window_limit(const SlotList& ready, const SlotList& taking, const SlotList& present, bool fused);
  void record_batch_size(const SlotList& slots);
  int64_t catch_up_tokens(const SlotList& slots) const;
  void record_read(const SlotList& slots, const SlotList& taking);
  void read(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready);
  void draft(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready, const SlotList& drafting, int64_t wanted, int64_t fed);
  void run_draft(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready);
  void catch_up_late(const SlotList& late, const SlotList& ready, int64_t history);
  bool propose(const SlotList& slots, int64_t most);
  void write_host_drafts(const SlotList& slots);
  void catch_up(const SlotList& slots, int64_t history);

  BoundGraphs& rounds_;
  Seconds& seconds_;
  Stopwatch& watch_;
  const bool on_device_, draws_, is_tree_, fused_, pairs_;
  const int64_t full_;
  std::optional<HostDrafts> proposals_;  // if no graph drafts, or the host may replace its drafts
  bool has_own_cache_ = false;         // the drafter has its own states; one that reads only the target's never lags
  bool has_persistent_state_ = false;  // it has states that outlive a generation and may be stale
  bool moves_on_ = false;              // the target cannot read a token twice: it has recurrent states or rings
  bool always_reads_ = false;          // it reads while drafting is paused: the target could not read the missed tokens again
  bool has_graph_ = false;             // a graph drafts
  bool skips_host_rounds_ = false;     // it may skip rounds with host drafts: it reads the tokens later, or never has to
  std::vector<int64_t> proposed_, found_;  // per slot: window written by the host, and its number of drafts
  Array drafted_;                          // the window at its full width
  Array parents_;                          // of a dynamic tree
  // Window width that the policy has chosen, and whether the next window uses it.
  int64_t adaptive_width_ = 1;
  bool is_adaptive_ = false;
  int batch_size_ = 0;  // the number of slots that the policy was told last
};

}  // namespace spc
