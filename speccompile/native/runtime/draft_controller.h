// The window of the next round: drafts, as many as the pace asks for, or the pending token alone (runtime/drafting.py).
//
// While nothing is drafted the drafter falls behind. Before it drafts again it reads what it has missed: alone, from the text
// that the host has; or, where it is fused with the target or needs more of it than tokens, beside the target, which is given
// the same tokens once more and commits the same rows. A target that carries states cannot be given a token twice: what drafts
// beside it goes on reading while it rests.
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

// Where the time of a generation went.
struct Seconds {
  double prefill = 0, verify = 0, draft = 0;
};

// What a run of the target was. taking: its rows took tokens, so that it was no middle of a text; fed: tokens of the text; last:
// no row's text waits to be read behind it.
struct RunInfo {
  bool sampled;
  int64_t prefill_tokens;
  bool is_last_chunk;
};

class DraftController {
 public:
  // seconds: where the time of drafting is added up. watch: of the loop. on_device: the engine runs on a GPU, where a narrow
  // window costs what a wide one does.
  DraftController(BoundGraphs& rounds, Seconds& seconds, Stopwatch& watch, bool on_device);

  // Who drafts from now on where no graph does, or in its place wherever it has drafts; empty for nobody.
  void set_proposer(Proposer proposer);
  // How far drafts came true elsewhere, before the first batch.
  void expect_acceptance(const MeasuredAcceptance& measured) { policy_->expect(measured); }
  // A batch begins.
  void begin(const Rows& rows, bool speculative, bool adaptive);
  // Whether the next run drafts as it verifies.
  bool is_fused() const { return fused_ && window_ > 1; }
  // Where the target has to be given every row's text again, so that the drafter reads it too; none where it has not. The
  // caller does it now.
  std::optional<std::vector<int64_t>> rows_to_reread();
  // The target was given so many tokens of a text.
  void record_prefill(int64_t tokens, double seconds);
  // How many tokens the next window has, in the row that has most.
  int64_t width(const Rows& rows) const;
  // Put the next windows of some rows of the batch into int64 [B, width], where a run reads them.
  void write_window(const Array& window, const Rows& rows, const Span& lines);
  // A round of decoding, in which the rows `active` took part, has been verified.
  void record_verify(int64_t width, double seconds, const Rows& rows, const std::vector<char>& active);
  // Make the next windows behind a run. n_path: of all rows, those of the run count. The lengths are still those before the run,
  // and may be others afterwards.
  void prepare_next_windows(VerifyPass& forward, const std::vector<int64_t>& n_path, const Rows& rows, const RunInfo& ran);

  // How many tokens of a chunk of the text begin the next one. Behind a chunk the target's own guess stands in the place of
  // the next token, and a drafter that pairs features with the next token would keep a wrong row.
  int64_t overlap = 0;
  // Whether, in the middle of a text, the next token is written in the place of that guess before it drafts.
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
  std::optional<HostDrafts> proposals_;  // where no graph drafts, or the host may in its place
  std::map<int, int> accepts_;          // what a window of each width can accept, for the pace
  bool may_adapt_ = false;
  bool has_own_cache_ = false;    // the drafter has states of its own; what reads the target's alone never falls behind
  bool has_persistent_state_ = false;       // it has states that outlive a generation, which may be old
  bool catches_up_alone_ = false;  // it needs tokens and nothing else
  bool always_reads_ = false;     // it reads while it rests: the target could not be given what it would miss
  bool has_graph_ = false;    // there is one
  bool skips_host_rounds_ = false;        // it need not run where the host drafts: it reads what it missed later, or never has to
  bool lags_by_host_rounds_ = false;      // it has missed nothing but rounds for which the host drafted
  std::vector<int64_t> proposed_, found_;  // of every row, the window that the host has written, and its drafts; -1: not asked
  std::vector<char> has_drafts_;               // of every row: whether drafts behind its last token wait to be verified
  std::unique_ptr<DraftLengthPolicy> policy_;
  Array drafted_;  // the window at its full width
  Array parents_;  // of a tree that grows
  bool adaptive_ = false, feeds_again_ = false;
  int64_t window_ = 1;  // the most tokens of the next window, 1 for no drafts
  std::optional<std::vector<int64_t>> unread_;  // where the drafter has to read on, in every row
  int64_t lag_ = 0;                             // how much it has missed, in the row in which that is most
};

}  // namespace spc
