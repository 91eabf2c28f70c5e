// Draft controller: fill the next window with drafts up to the draft length, or with the pending token alone
// (runtime/rounds/draft_controller.py).
//
// While drafting is paused the drafter lags. Before it drafts again it reads the missed tokens: by itself from the host's
// text; or, if it is fused with the target or needs the target's features, together with the target, which re-runs these
// tokens and commits the same cache entries. A target with recurrent state cannot read a token twice: its drafter keeps
// reading while drafting is paused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "adaptive_length.h"
#include "host_drafts.h"
#include "bound_graphs.h"
#include "sampling_inputs.h"
#include "stopwatch.h"

namespace spc {

// Seconds of a generation by phase.
struct Seconds {
  double prefill = 0, verify = 0, draft = 0;
};

// Kind of a target run. sampled: its rows got tokens, so that it was not in the middle of a prompt; prefill_tokens: prompt
// tokens that it read; is_last_chunk: no row has unread prompt tokens after it.
struct RunInfo {
  bool sampled;
  int64_t prefill_tokens;
  bool is_last_chunk;
};

class DraftController {
 public:
  // seconds: sums to which drafting adds its time. watch: the loop's. on_device: the engine runs on a GPU, where a narrow
  // window costs as much as a wide one.
  DraftController(BoundGraphs& rounds, Seconds& seconds, Stopwatch& watch, bool on_device);

  // Set the proposer, which drafts if no graph does, or replaces the graph's drafts whenever it has any; empty for none.
  void set_proposer(Proposer proposer);
  // Set the acceptance measured elsewhere, before the first batch.
  void expect_acceptance(const MeasuredAcceptance& measured) { policy_->expect(measured); }
  // Set or return the costs of rounds, see `DraftLengthPolicy`.
  void expect_times(const Json& times) { policy_->expect_times(times); }
  std::optional<Json> measured_times() const { return policy_->measured_times(); }
  double autoregressive_seconds() const { return policy_->autoregressive_seconds(); }
  // Begin a batch.
  void begin(const Rows& rows, bool speculative, bool adaptive);
  // Return whether the next run also drafts.
  bool is_fused() const { return fused_ && window_ > 1; }
  // Return the position in every row from which the target must re-run so that the drafter catches up; nullopt if it need
  // not. The caller re-runs it at once.
  std::optional<std::vector<int64_t>> rows_to_reread();
  // Record that the target has read `tokens` tokens of a prompt, or again for the drafter.
  void record_prefill(int64_t tokens, double seconds);
  // Return the width of the next window: the maximum over the rows.
  int64_t width(const Rows& rows) const;
  // Write the next windows of some rows of the batch into a run's input int64 [B, width].
  void write_window(const Array& window, const Rows& rows, const Span& lines);
  // Record a verified round. active: rows that took part.
  void record_verify(int64_t width, std::optional<double> seconds, const Rows& rows, const std::vector<char>& active);
  // Make the next windows after a run. n_path: of all rows; only those of the run count. On entry the lengths are those before
  // the run; the call may change them.
  void prepare_next_windows(VerifyPass& forward, const std::vector<int64_t>& n_path, const Rows& rows, const RunInfo& ran);

  // Number of tokens that consecutive prompt chunks share. After a chunk, the target's prediction takes the position of the
  // next token: a drafter that pairs features with the next token would keep a wrong cache entry.
  int64_t overlap = 0;
  // True if, in the middle of a prompt, the true next token replaces that prediction before the drafter runs.
  bool needs_next_prompt_token = false;

 private:
  void mark_lagging(const std::vector<int64_t>& n_path, const Span& lines);
  void read(VerifyPass& forward);
  void draft(VerifyPass& forward, const std::vector<int64_t>& n_path, const Rows& rows, const RunInfo& ran);
  bool propose(const Rows& rows, const Span& lines);
  void mark_host_drafted(const std::vector<int64_t>& n_path, const Span& lines);
  void write_host_drafts();
  void catch_up(const Rows& rows, int64_t history);
  void set_has_drafts(const Rows& rows, const Span& lines, bool drafts);

  BoundGraphs& rounds_;
  Seconds& seconds_;
  Stopwatch& watch_;
  const bool on_device_, draws_, is_chain_, fused_;
  const int64_t full_;
  std::optional<HostDrafts> proposals_;  // if no graph drafts, or the host may replace its drafts
  std::map<int, int> accepts_;          // window width -> drafts that it can accept, for the policy
  bool may_adapt_ = false;
  bool has_own_cache_ = false;    // the drafter has its own states; one that reads only the target's never lags
  bool has_persistent_state_ = false;       // it has states that outlive a generation and may be stale
  bool catches_up_alone_ = false;  // it needs tokens only, no features of the target
  bool always_reads_ = false;     // it reads while drafting is paused: the target could not read the missed tokens again
  bool has_graph_ = false;    // a graph drafts
  bool skips_host_rounds_ = false;        // it may skip rounds with host drafts: it reads the tokens later, or never has to
  bool lags_by_host_rounds_ = false;      // it has missed only rounds with host drafts
  std::vector<int64_t> proposed_, found_;  // per row: window written by the host, and its number of drafts; -1: not requested
  std::vector<char> has_drafts_;               // per row: whether drafts after its last token await verification
  std::unique_ptr<DraftLengthPolicy> policy_;
  Array drafted_;  // the window at its full width
  Array parents_;  // of a dynamic tree
  bool adaptive_ = false, feeds_again_ = false;
  int64_t window_ = 1;  // maximum tokens of the next window, 1 for no drafts
  std::optional<std::vector<int64_t>> unread_;  // per row: position from which the drafter must read on
  int64_t lag_ = 0;                             // tokens that it has missed, maximum over the rows
};

}  // namespace spc
