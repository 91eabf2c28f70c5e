#include "draft_controller.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "../words.h"
#include "sampling_inputs.h"
#include "tree_acceptance.h"

namespace spc {
namespace {

bool is_kept(const Tensor& tensor) { return tensor.role == role::kState && starts_with(tensor.buffer, kPersistentPrefix); }

bool is_own_state(const Tensor& tensor) {
  return tensor.role == role::kState && !starts_with(tensor.buffer, std::string(component::kTarget) + ".") && !is_kept(tensor);
}

template <class Holds>
SlotList filtered(const SlotList& slots, Holds holds) {
  SlotList found;
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(found), holds);
  return found;
}

bool is_any_speculative(const SlotStarts& begin) {
  return std::any_of(begin.begin(), begin.end(), [](const auto& each) { return each.first->speculative; });
}

}  // namespace

DraftController::DraftController(BoundGraphs& rounds, Seconds& seconds, Stopwatch& watch, bool on_device)
    : rounds_(rounds),
      seconds_(seconds),
      watch_(watch),
      on_device_(on_device),
      draws_(rounds.manifest.sample),
      is_tree_(rounds.manifest.tree == tree::kDynamic && !on_device),
      fused_(rounds.graph(graph::kStep) != nullptr),
      pairs_(has_input(rounds.manifest, names::kPairs)),
      full_(rounds.manifest.tokens + 1) {
  const Graph* const drafter = rounds.graph(fused_ ? graph::kStep : graph::kDraft);
  has_own_cache_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_own_state);
  has_persistent_state_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_kept);
  catches_up_alone = !fused_ && !(drafter && drafter->input(names::kFeatures));
  has_graph_ = drafter != nullptr;
  skips_host_rounds_ = !has_persistent_state_ && (catches_up_alone || !has_own_cache_);
  found_.resize(static_cast<size_t>(rounds.manifest.batch_size));
  proposed_.resize(found_.size() * static_cast<size_t>(full_));
  moves_on_ = has_recurrent_states(rounds.manifest.graphs, component::kTarget) || !rounds.manifest.rings.empty();
  overlap = pairs_ && fused_;
  is_told = pairs_ && !fused_;
  always_reads_ = moves_on_ && has_own_cache_ && !fused_ && !catches_up_alone;
  // On a GPU a fused bundle would need the target's weights twice for rounds without drafts.
  may_adapt = rounds.manifest.exact && !(fused_ && (on_device || (moves_on_ && has_own_cache_)));
  set_proposer({});
  widths = offered_widths(rounds.manifest, !on_device);
  policy = std::make_unique<AdaptiveDraftLength>(widths, fused_, is_tree_ ? static_cast<int>(rounds.manifest.depth) : 0);
  drafted_ = rounds.engine.host_view(names::kWindow, {rounds.manifest.batch_size, full_});
  if (has_input(rounds.manifest, names::kParents)) parents_ = rounds.engine.host_view(names::kParents, drafted_.shape);
}

void DraftController::set_proposer(Proposer proposer) {
  if (needs_proposer(rounds_.manifest) || !gate_config(rounds_.manifest).is_null()) proposals_.emplace(std::move(proposer), rounds_.manifest);
}

void DraftController::admit(Slot& slot, SequenceState& row, int64_t reuse, bool speculative, bool adaptive, SlotList others) {
  if (parents_.data)  // a chain, until there are drafts
    for (int64_t node = 0; node < full_; ++node) parents_.ints()[slot.index * full_ + node] = node - 1;
  const bool fixed = speculative && !(adaptive && allows_adaptive_length(row) && may_adapt);
  const int64_t read = kept_length(slot, reuse);
  slot.admit(row, reuse, read, speculative, fixed);
  if (!speculative || read >= reuse || catches_up_alone) return;
  others.push_back(&slot);
  if (window_limit(others) > 1 || moves_on_) slot.committed_length = slot.prefill_position = read;  // read at once, together with the target
}

int64_t DraftController::window_limit(const SlotList& present) {
  const SlotList drafting = filtered(present, [](const Slot* slot) { return slot->speculative; });
  is_adaptive_ = !drafting.empty() && std::none_of(drafting.begin(), drafting.end(), [](const Slot* slot) { return slot->fixed_draft_length; });
  if (!is_adaptive_) return drafting.empty() ? 1 : full_;
  const SlotList news = filtered(drafting, [](const Slot* slot) { return !slot->is_tracked; });
  if (news.empty()) return adaptive_width_;
  int64_t prompt = 0, room = 0;
  for (Slot* const slot : news) {
    prompt = std::max(prompt, static_cast<int64_t>(slot->sequence->prompt.size()));
    room = std::max(room, slot->sequence->max_new_tokens);
    slot->is_tracked = true;
  }
  if (news.size() == drafting.size()) {
    record_batch_size(drafting);
    adaptive_width_ = policy->begin(prompt, room);
  } else {
    policy->join(prompt, room);
  }
  return adaptive_width_;
}

int64_t DraftController::width(const SlotList& decoding, int64_t wanted) const {
  if (wanted == 1 || decoding.empty()) return 1;
  if (on_device_) return full_;
  int64_t longest = 1;
  for (const Slot* const slot : decoding)
    if (slot->has_drafts) longest = std::max(longest, rounds_.n_total[slot->index]);
  const bool can_truncate = rounds_.manifest.is_chain() || is_tree_ || proposals_;  // a window may hold only the first of the drafts
  return can_truncate || longest == 1 ? std::min(wanted, longest) : full_;
}

void DraftController::write_window(const Array& window, int64_t width, const SlotList& decoding) {
  for (const Slot* const slot : decoding) {
    int64_t* const line = window.ints() + slot->index * window.shape[1];
    int64_t& total = rounds_.n_total[slot->index];
    if (width == 1 || !slot->has_drafts) {
      line[0] = slot->sequence->token_ids.back();
      total = 1;
    } else {
      if (window.shape[1] != full_) std::copy_n(drafted_.ints() + slot->index * full_, width, line);
      total = std::min(total, width);
    }
  }
}

bool DraftController::runs_fused(const SlotStarts& begin, int64_t wanted) const {
  return fused_ && wanted > 1 && std::any_of(begin.begin(), begin.end(), [&](const auto& each) {
    return each.first->speculative && has_read_all(*each.first, each.second);
  });
}

SlotList DraftController::slots_to_reread(const SlotList& decoding, const SlotList& present) {
  if (catches_up_alone || !has_own_cache_ || window_limit(present) == 1) return {};
  return filtered(decoding, [](const Slot* slot) { return slot->speculative && slot->drafter_length < slot->committed_length; });
}

void DraftController::record_verify(double seconds, const SlotStarts& begin, const SlotList& decoding, const RunInfo& run) {
  for (const auto& each : begin)
    if (!has_own_cache_) each.first->drafter_length = each.first->committed_length;
  if (!is_adaptive_ || !is_any_speculative(begin)) return;
  if (run.prefill_tokens) {
    if (adaptive_width_ > 1 && !catches_up_alone && decoding.empty())
      policy->record_catch_up(run.prefill_tokens, seconds, run.is_reread ? seconds : 0.0);
    return;
  }
  const std::optional<double> timed = run.is_first ? std::nullopt : std::optional<double>(seconds);
  record_batch_size(decoding);
  if (adaptive_width_ == 1) return policy->record_autoregressive(timed);
  // A host's tree has as many nodes as it found: its width may be none of those that are timed.
  const int width = static_cast<int>(widths.count(static_cast<int>(run.width)) ? run.width : full_);
  std::vector<int> accepted;
  int without = 0;
  for (const Slot* const slot : decoding) {
    const int64_t count = slot->sequence->path_lengths.back() - 1;
    if (!slot->sequence->draft_lengths.back())
      ++without;
    else if (!is_tree_ || !run.nodes.data)
      accepted.push_back(static_cast<int>(count));
    else
      append_accepted_by_width(accepted, run.nodes.ints() + slot->index * run.nodes.shape[1] + 1, count, widths, width);
  }
  policy->record_verify(width, timed, accepted, without);
}

void DraftController::prepare_next_windows(VerifyPass& forward, const SlotStarts& begin, const SlotList& taking, const SlotList& present,
                                           int64_t fed) {
  const bool is_step = forward.key.fused;
  SlotList ready;
  for (const auto& [slot, start] : begin)
    if (has_read_all(*slot, start)) ready.push_back(slot);
  if (is_step) record_read(ready, taking);
  const int64_t wanted = next_window_limit(ready, taking, present, is_step);
  for (const auto& each : begin) {
    each.first->has_drafts = false;
    each.first->lags_by_host_rounds = each.first->lags_by_host_rounds && wanted > 1;
  }
  const SlotList drafting = filtered(taking, [](const Slot* slot) { return slot->speculative && slot->is_active(); });
  if (is_step) {
    forward.copy_next_inputs();
    for (Slot* const slot : drafting) slot->has_drafts = contains(ready, slot);
  } else if (wanted > 1 && !fused_) {
    // In the middle of a prompt no drafts are needed, only the drafter's states.
    if (!taking.empty() || has_own_cache_ || has_persistent_state_) draft(forward, begin, ready, drafting, wanted, fed);
  } else if (reads_while_paused(begin)) {
    read(forward, begin, ready);
  }
}

// Return the maximum width of the next window. Query the policy once a round, but not when only a prefill has ended while other
// slots decode.
int64_t DraftController::next_window_limit(const SlotList& ready, const SlotList& taking, const SlotList& present, bool fused) {
  const int64_t wanted = window_limit(present);
  const SlotList decoding = filtered(present, [](const Slot* slot) { return slot->decodes(); });
  if (!is_adaptive_ || std::none_of(taking.begin(), taking.end(), [](const Slot* slot) { return slot->is_active(); })) return wanted;
  if (std::any_of(decoding.begin(), decoding.end(), [&](const Slot* slot) { return !contains(taking, slot); })) return wanted;
  const bool misses = fused_ && !fused && has_own_cache_;
  const SlotList lagging = filtered(decoding, [&](const Slot* slot) { return slot->speculative && (misses || !contains(ready, slot)); });
  record_batch_size(decoding);
  return adaptive_width_ = policy->next_width(catch_up_tokens(lagging));
}

// Report the number of slots in a round to the policy, if it changes; 1 if every run covers the whole batch.
void DraftController::record_batch_size(const SlotList& slots) {
  const int size = rounds_.supports_batch_slices ? static_cast<int>(slots.size()) : 1;
  if (size == batch_size_) return;
  batch_size_ = size;
  policy->record_batch_size(size);
}

// Return the tokens of a catch-up: a sum where slots run in turn, a maximum where they run together.
int64_t DraftController::catch_up_tokens(const SlotList& slots) const {
  const bool has_slices = rounds_.supports_batch_slices;
  int64_t found = 0;
  for (const Slot* const slot : slots) {
    const int64_t lag = slot->committed_length - slot->drafter_length;
    found = has_slices ? found + lag : std::max(found, lag);
  }
  return found;
}

// Record the run's tokens as read; in mid-prompt without the `overlap` that the next chunk repeats.
void DraftController::record_read(const SlotList& slots, const SlotList& taking) {
  for (Slot* const slot : slots) {
    slot->drafter_length = slot->prefill_position + (contains(taking, slot) ? overlap : 0);
    slot->lags_by_host_rounds = false;
  }
}

// Return whether the drafter reads although no drafts are needed: to keep its persistent state useful, or because the target
// could not read the tokens again for it.
bool DraftController::reads_while_paused(const SlotStarts& begin) const {
  const bool reads = always_reads_ || (has_persistent_state_ && !fused_ && !has_own_cache_);
  return reads && is_any_speculative(begin);
}

// Run the drafter over the run's path, and ignore its drafts.
void DraftController::read(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready) {
  forward.draft();  // which is bound the first time
  const double start = wall_seconds();
  run_draft(forward, begin, ready);
  seconds_.draft += wall_seconds() - start;
}

// Ask the host for drafts, and run the drafter's graph unless the host has drafted for all slots.
void DraftController::draft(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready, const SlotList& drafting, int64_t wanted,
                            int64_t fed) {
  const SlotList late = filtered(drafting, [&](const Slot* slot) { return catches_up_alone && !contains(ready, slot); });
  if (has_graph_ && ready.empty() && late.empty()) return;  // the target runs first: see `slots_to_reread`
  const SlotList asked = filtered(drafting, [&](const Slot* slot) { return contains(ready, slot) || contains(late, slot); });
  const bool runs = has_graph_ && !ready.empty() && (rounds_.supports_batch_slices || late.empty()), had_drafted = forward.has_drafted;
  if (runs) forward.draft();  // which is bound the first time
  int64_t read = 0;
  const double start = wall_seconds();
  const bool all = propose(asked, wanted - 1);
  if (!has_graph_ || (!fed && skips_host_rounds_ && all)) {
    for (Slot* const slot : ready) slot->lags_by_host_rounds = has_graph_ && has_own_cache_;
  } else {
    read = fed ? fed : catch_up_tokens(filtered(late, [](const Slot* slot) { return !slot->lags_by_host_rounds; }));
    if (runs) run_draft(forward, begin, ready);
    catch_up_late(late, ready, forward.key.history);
    for (Slot* const slot : asked) slot->has_drafts = true;
  }
  write_host_drafts(asked);
  seconds_.draft += wall_seconds() - start;
  const double seconds = watch_.lap();
  if (!is_adaptive_ || !is_any_speculative(begin)) return;
  const bool is_first = forward.has_drafted && !had_drafted;
  if (read)
    policy->record_catch_up(read, seconds, is_first ? 0.0 : seconds);
  else
    policy->record_draft(is_first ? std::nullopt : std::optional<double>(seconds));
}

// Run the drafter over the run's path in the slots that are ready. It must not read the run in the other slots, because it has
// missed earlier tokens there.
void DraftController::run_draft(VerifyPass& forward, const SlotStarts& begin, const SlotList& ready) {
  for (const auto& each : begin)
    if (!contains(ready, each.first)) rounds_.n_path[each.first->index] = 0;
  forward.draft()();
  forward.has_drafted = true;
  record_read(ready, {});
}

// Let a drafter that lags in some slots read the missed tokens there alone; side by side with the ready slots where every run
// covers the whole batch.
void DraftController::catch_up_late(const SlotList& late, const SlotList& ready, int64_t history) {
  if (rounds_.supports_batch_slices)
    for (Slot* const slot : late) catch_up({slot}, history);
  if (rounds_.supports_batch_slices || late.empty()) return;
  SlotList whole = filtered(ready, [](const Slot* slot) { return slot->is_active(); });
  whole.insert(whole.end(), late.begin(), late.end());
  catch_up(whole, history);
}

// Ask for at most `most` drafts per slot. Return whether every slot has some, and there is one.
bool DraftController::propose(const SlotList& slots, int64_t most) {
  if (!proposals_) return false;
  bool all = !slots.empty();
  for (const Slot* const slot : slots) {
    const int64_t start = slot->index * full_;
    int64_t* const parents = parents_.data ? parents_.ints() + start : nullptr;
    int64_t& found = found_[static_cast<size_t>(slot->index)];
    found = proposals_->write(slot->sequence->all_token_ids(), proposed_.data() + start, parents, most);
    all = all && found;
  }
  return all;
}

// Make the host's drafts the window of every slot that has any, and of all slots if no graph drafts.
void DraftController::write_host_drafts(const SlotList& slots) {
  if (!proposals_) return;
  for (Slot* const slot : slots) {
    const int64_t drafts = found_[static_cast<size_t>(slot->index)], start = slot->index * full_;
    if (has_graph_ && !drafts) continue;
    std::copy_n(proposed_.data() + start, drafts + 1, drafted_.ints() + start);
    rounds_.n_total[slot->index] = 1 + drafts;
    slot->has_drafts = true;
  }
}

// Run the drafter over the missed tokens of some slots, then over the last token, and draft. Each run also reads the token after
// its chunk, which in a prefill is the target's prediction.
void DraftController::catch_up(const SlotList& slots, int64_t history) {
  const Span rows = rounds_.supports_batch_slices ? slot_range(slots) : rounds_.all();
  std::vector<Span> missed;
  for (const Slot* const slot : slots) missed.push_back({slot->drafter_length, slot->committed_length});
  for (const std::vector<Span>& parts : right_aligned_chunks(missed, rounds_.manifest.prefill_chunk)) {
    int64_t longest = 0;
    for (const Span& part : parts) longest = std::max(longest, part.size());
    CatchUp& reading = rounds_.catch_up(longest, history, rows);
    std::fill(rounds_.n_path + rows.start, rounds_.n_path + rows.stop, 0);
    for (size_t i = 0; i < slots.size(); ++i) {
      const int64_t index = slots[i]->index;
      int64_t* const line = reading.path.ints() + index * reading.path.shape[1];
      for (int64_t place = parts[i].start; place <= parts[i].stop; ++place) line[place - parts[i].start] = slots[i]->sequence->token(place);
      rounds_.n_path[index] = parts[i].size();
      rounds_.length[index] = parts[i].start;
    }
    reading.run();
  }
  for (Slot* const slot : slots) {
    slot->drafter_length = slot->committed_length;
    slot->lags_by_host_rounds = false;
  }
}

}  // namespace spc
