// The window of the next round: drafts, as many as the pace asks for, or the pending token alone (runtime/drafting.py).
//
// While nothing is drafted the drafter falls behind. Before it drafts again it reads what it has missed: alone, from the text
// that the host has; or, where it is fused with the target or needs more of it than tokens, beside the target, which is given
// the same tokens once more and commits the same rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pace.h"
#include "rounds.h"
#include "sampling.h"
#include "stopwatch.h"

namespace spc {

// Where the time of a generation went.
struct Seconds {
  double prefill = 0, verify = 0, draft = 0;
};

class Drafting {
 public:
  // seconds: where the time of the drafter's own graph is added up. watch: of the loop. on_device: the engine runs on a GPU,
  // where a narrow window costs what a wide one does.
  Drafting(Rounds& rounds, Seconds& seconds, Stopwatch& watch, bool on_device);

  // A batch begins.
  void begin(const Rows& rows, bool speculative, bool adaptive);
  // Whether the next run drafts as it verifies.
  bool is_fused() const { return fused_ && window_ > 1; }
  // Where the target has to be given every row's text again, so that the drafter reads it too; none where it has not. The
  // caller does it now.
  std::optional<std::vector<int64_t>> claim_unread();
  // The target was given so many tokens of a text.
  void fed(int64_t tokens, double seconds);
  // How many tokens the next window has, in the row that has most.
  int64_t width(const Rows& rows) const;
  // Put the next window, int64 [B, width], where a run of this width reads it.
  void fill(const Array& window);
  // A round of decoding, in which the rows `active` took part, has been verified.
  void verified(int64_t width, double seconds, const Rows& rows, const std::vector<char>& active);
  // Make the next window. taking: the rows took tokens of this run, which is no middle of a text; fed: tokens of the text. The
  // lengths are still those before the run, and may be others afterwards.
  void advance(Forward& forward, const std::vector<int64_t>& n_path, const Rows& rows, bool taking, int64_t fed);

  // How many tokens of a chunk of the text begin the next one. Behind a chunk the target's own guess stands in the place of
  // the next token, and a drafter that pairs features with the next token would keep a wrong row.
  int64_t overlap = 0;

 private:
  void fall_behind(const std::vector<int64_t>& n_path);
  void draft(Forward& forward, const Rows& rows, int64_t fed);
  void catch_up(const Rows& rows, int64_t history);
  void write_pending(const Forward& forward, const std::vector<int64_t>& n_path);

  Rounds& rounds_;
  Seconds& seconds_;
  Stopwatch& watch_;
  const bool on_device_, draws_, is_chain_, fused_, can_adapt_;
  const int64_t full_;
  bool remembers_ = false;    // the drafter has states of its own; what reads the target's alone never falls behind
  bool reads_alone_ = false;  // it needs tokens and nothing else
  std::unique_ptr<Policy> pace_;
  Array drafted_, pending_;  // the window at its full width, and of a single token
  bool adaptive_ = false, feeds_again_ = false;
  int64_t window_ = 1;  // the most tokens of the next window, 1 for no drafts
  std::optional<std::vector<int64_t>> unread_;  // where the drafter has to read on, in every row
  int64_t lag_ = 0;                             // how much it has missed, in the row in which that is most
};

}  // namespace spc
