#include "decode_loop.h"

#include <algorithm>
#include <string>

#include "../audio/rules.h"
#include "../images/media.h"
#include "loop_checks.h"

namespace spc {
namespace {

bool has_any_recurrent_states(const Manifest& manifest) {
  return std::any_of(std::begin(component::kAll), std::end(component::kAll),
                     [&](const char* part) { return has_recurrent_states(manifest.graphs, part); });
}

// Return the rules of a sequence that read the logits before each of its tokens; null if none do.
audio::RuleMatcher* scoring(const SequenceState& row) { return row.rules && row.rules->reads_logits ? row.rules.get() : nullptr; }

bool is_any_active(const SlotList& slots) {
  return std::any_of(slots.begin(), slots.end(), [](const Slot* slot) { return slot->is_active(); });
}

}  // namespace

DecodeLoop::DecodeLoop(Engine& engine, const Manifest& manifest, const std::vector<Graph>& graphs, bool on_device)
    : supports_prefix_reuse(!has_any_recurrent_states(manifest)),
      rounds_(engine, manifest),
      watch_(clock(on_device)),
      drafting_(rounds_, seconds, watch_, on_device),
      sources_(SourceEncoder::of(engine, manifest)),
      states_(engine, graphs),
      recurrent_{has_recurrent_states(manifest.graphs, component::kTarget), has_recurrent_states(manifest.graphs, component::kDrafter)},
      rings_(manifest) {
  if (has_input(manifest, names::kAllowed)) masks_.emplace(engine, manifest);
  if (has_input(manifest, names::kMedia)) media_.emplace(engine, manifest);
  if (has_input(manifest, names::kUniforms)) sampler_.emplace(engine, manifest);
  if (has_input(manifest, names::kAdapter)) adapters_ = engine.host_view(names::kAdapter, {manifest.batch_size}).ints();
  for (int64_t slot = 0; slot < manifest.batch_size; ++slot) slots_.emplace_back(slot);
}

int64_t DecodeLoop::admit(int64_t slot, SequenceState& row, bool speculative, bool adaptive, int64_t reuse) {
  Slot& own = free_slot(slot);
  if (row.media) reuse = row.media->reusable(reuse);
  require(row.is_active(), "the sequence for " + of_slot(slot) + " has ended");
  require(0 <= reuse && reuse <= own.committed_length,
          of_slot(slot) + " holds " + std::to_string(own.committed_length) + " tokens, not " + std::to_string(reuse));
  require(reuse < row.size(), "the last token of a text is always read");
  require(!recurrent_.target || reuse == 0 || reuse == own.committed_length, "what states have read cannot be taken back");
  require(!sources_ || row.source, "an answer of a target with an encoder has a source");
  require(!sources_ || !reuse || sources_->held(slot) == row.source_key(), "what was read depends on the source");
  left.reset();
  resume.reset();
  const bool alone = !speculative || drafting_.catches_up_alone;
  if (!rings_.holds(own.written, alone ? reuse : drafting_.kept_length(own, reuse))) reuse = 0;
  drafting_.admit(own, row, reuse, speculative, adaptive, active_slots());
  if (own.prefill_position == 0) own.written = 0;
  if (sampler_) sampler_->admit(slot, row, speculative);
  return own.prefill_position;
}

int64_t DecodeLoop::prefill(int64_t slot, std::optional<int64_t> most) {
  Slot& own = slots_.at(static_cast<size_t>(slot));
  require(own.sequence, of_slot(slot) + " is free");
  require(!own.is_prefilled, "the text of " + of_slot(slot) + " has been read");
  encode_source(own);
  const int64_t chunk = rounds_.manifest.prefill_chunk;
  const int64_t size = most ? std::max(std::min(*most, chunk), 1 + drafting_.overlap) : chunk;
  const int64_t start = own.prefill_position;
  const Span part = {start, chunk_stop(own, start + drafting_.overlap, std::min(start + size, own.sequence->size()))};
  run({{&own, part}}, rounds_.supports_batch_slices ? SlotList() : decoding(), false);
  return part.size();
}

void DecodeLoop::decode() {
  SlotList decoding = this->decoding();
  if (decoding.empty()) return;
  SlotList reading = drafting_.slots_to_reread(decoding, active_slots());
  for (Slot* const slot : decoding) slot->prefill_position = contains(reading, slot) ? slot->drafter_length : slot->committed_length;
  const bool again = !reading.empty(), has_slices = rounds_.supports_batch_slices;
  if (again && !has_slices) reading = decoding;  // the drafts of other slots would be lost
  const auto rest = std::remove_if(decoding.begin(), decoding.end(), [&](const Slot* slot) { return contains(reading, slot); });
  decoding.erase(rest, decoding.end());
  if (!decoding.empty()) run({}, decoding, false);
  if (again && !has_slices) return prefill_slots(reading, true);
  for (Slot* const slot : reading) prefill_slots({slot}, true);
}

Committed DecodeLoop::release(int64_t slot) {
  Slot& own = slots_.at(static_cast<size_t>(slot));
  require(own.sequence, of_slot(slot) + " is free");
  if (sampler_) sampler_->release(slot);
  const int64_t target = own.committed_length, drafter = own.drafter_length, adapter = own.sequence->adapter;
  const std::string key = own.sequence->adapter_key;
  Committed held = own.release();
  left = SlotContent{held.tokens, held.drafter_length, target, drafter, slot, adapter, key, own.written, sources_ ? sources_->held(slot) : ""};
  return held;
}

void DecodeLoop::hold(const SlotContent& content) {
  Slot& own = free_slot(content.slot);
  own.committed_length = static_cast<int64_t>(content.tokens.size());
  own.drafter_length = content.drafter_length;
  own.written = content.written;
}

SlotContent DecodeLoop::content(int64_t slot) const {
  const Slot& own = slots_.at(static_cast<size_t>(slot));
  const int64_t target = own.committed_length, drafter = own.drafter_length;
  TokenIds tokens = own.sequence->identity();
  tokens.resize(static_cast<size_t>(target));
  return {tokens, std::min(target, drafter), target, drafter, slot, own.sequence->adapter, own.sequence->adapter_key, own.written};
}

void DecodeLoop::copy(int64_t source, int64_t slot) {
  Slot& own = free_slot(slot);
  const Slot& other = slots_.at(static_cast<size_t>(source));
  own.committed_length = other.committed_length;
  own.drafter_length = other.drafter_length;
  own.written = other.written;
  states_.copy(source, slot);
  if (sources_) sources_->copy(source, slot);
}

void DecodeLoop::begin(Rows& rows, bool speculative, bool adaptive) {
  watch_.start();
  for (Slot& slot : slots_) discard(slot);
  batch_.clear();
  const auto allows = [&](const SequenceState& row) { return drafting_.allows_adaptive_length(row); };
  adaptive = adaptive && std::all_of(rows.begin(), rows.end(), allows);
  const std::map<int64_t, int64_t> reuse = take_resumed(rows, speculative);
  is_alone_ = rows.size() == 1;
  for (size_t i = 0; i < std::min(rows.size(), slots_.size()); ++i) {
    if (!rows[i].is_active()) continue;
    const auto slot = static_cast<int64_t>(i);
    const auto kept = reuse.find(slot);
    reused[slot] = admit(slot, rows[i], speculative, adaptive, kept == reuse.end() ? 0 : kept->second);
    batch_.push_back(&slots_[i]);
  }
  is_new_ = true;
  watch_.pause();
}

void DecodeLoop::step() {
  watch_.resume();
  if (is_new_) {
    is_new_ = false;
    seconds = {};
    const double start = wall_seconds();
    for (const Slot* const slot : batch_) encode_source(*slot);
    for (const SlotList& group : rounds_.supports_batch_slices ? group_by_length(batch_) : std::vector<SlotList>{batch_}) prefill_slots(group, false);
    seconds = {wall_seconds() - start, 0, 0};
  } else {
    decode();
  }
  for (Slot* const slot : batch_)
    if (!slot->is_active()) note_and_discard(*slot);
  watch_.pause();
}

void DecodeLoop::leave() {
  for (Slot* const slot : batch_) note_and_discard(*slot);
  batch_.clear();
}

// Return slot -> number of tokens with which its sequence goes on from `starts`, or the only one from `resume`, which the slots
// hold now.
std::map<int64_t, int64_t> DecodeLoop::take_resumed(const Rows& rows, bool speculative) {
  std::map<int64_t, SlotContent> contents = std::exchange(starts, {});
  const std::optional<SlotContent> held = std::exchange(resume, std::nullopt);
  if (rows.size() == 1) contents.clear();
  if (rows.size() == 1 && held) contents.emplace(0, *held);
  left.reset();
  reused.clear();
  std::map<int64_t, int64_t> found;
  for (const auto& [slot, content] : contents) {
    const auto place = static_cast<size_t>(slot);
    if (rows[place].is_active()) found[slot] = resume_slot(slots_[place], rows[place], content, drafting_, recurrent_, speculative);
  }
  return found;
}

// Release a slot whose sequence is still there, and discard its content. `left`, the note of that content, stays if the slot is alone.
void DecodeLoop::note_and_discard(Slot& slot) {
  if (slot.sequence) release(slot.index);
  if (!is_alone_) left.reset();
  discard(slot);
}

// Release a slot, and forget what its caches hold, so that it lengthens no other slot's attention. Its sequence need not exist
// any more.
void DecodeLoop::discard(Slot& slot) {
  if (sampler_ && slot.sequence) sampler_->release(slot.index);
  slot.discard();
}

SlotList DecodeLoop::decoding() {
  SlotList found;
  for (Slot& slot : slots_)
    if (slot.decodes()) found.push_back(&slot);
  return found;
}

Slot& DecodeLoop::free_slot(int64_t slot) {
  Slot& found = slots_.at(static_cast<size_t>(slot));
  require(!found.sequence, of_slot(slot) + " is taken");
  return found;
}

// Prefill the remaining tokens of some slots, in chunks that end together, and take the tokens that follow. again: the target
// reads tokens again that a drafter has missed.
void DecodeLoop::prefill_slots(const SlotList& slots, bool again) {
  std::vector<Span> spans;
  std::vector<ChunkStop> stops;
  for (const Slot* const slot : slots) {
    spans.push_back({slot->prefill_position, slot->sequence->size()});
    stops.emplace_back([slot](int64_t start, int64_t stop) { return chunk_stop(*slot, start, stop); });
  }
  for (const std::vector<Span>& chunk : right_aligned_chunks(spans, rounds_.manifest.prefill_chunk, drafting_.overlap, stops)) {
    SlotSpans parts;
    for (size_t i = 0; i < slots.size(); ++i)
      if (chunk[i].size()) parts.emplace_back(slots[i], chunk[i]);
    run(parts, {}, again);
  }
}

// Run the target once: over a chunk of some prompts, and in the decoding slots over the last token and its drafts. Sequences at
// the end of their prompt and decoding ones take new tokens. Then make the drafts of the next round.
void DecodeLoop::run(const SlotSpans& parts, const SlotList& decoding, bool again) {
  SlotList taking;
  SlotStarts begin;
  int64_t fed = 0;
  for (const auto& [slot, part] : parts) {
    begin.emplace_back(slot, part.start);
    if (part.stop == slot->sequence->size()) taking.push_back(slot);
    fed = std::max(fed, part.size());
  }
  for (Slot* const slot : decoding) {
    begin.emplace_back(slot, slot->committed_length);
    taking.push_back(slot);
  }
  const int64_t wanted = drafting_.window_limit(active_slots()), width = drafting_.width(decoding, wanted);
  MediaParts media = parts;
  for (Slot* const slot : decoding) media.emplace_back(slot, Span{slot->committed_length, slot->committed_length + 1});
  const int64_t shown = media_ ? media_->count(media) : 1;
  VerifyPass& forward = this->forward(std::max(width, fed), width, begin, taking, drafting_.runs_fused(begin, wanted), fed > 0, shown);
  if (media_) media_->write(forward.key.window, forward.key.rows, media, shown);
  write_inputs(forward, parts, decoding);
  drafting_.write_window(forward.window, width, decoding);
  if (masks_) masks_->write(forward, rounds_, taking);
  if (sampler_) sampler_->adjust(forward, rounds_, taking);
  const bool is_first = !forward.has_run;
  const double spent = verify(forward, taking);
  forward.has_run = true;
  note_written(forward);
  commit(forward, parts, begin, taking);
  drafting_.record_verify(spent, begin, decoding, {width, fed, again, is_first, forward.nodes});
  if (taking.size() < begin.size() || is_any_active(taking)) drafting_.prepare_next_windows(forward, begin, taking, active_slots(), fed);
}

// Return the pass at these widths over the slots of `begin`, with the inputs for sampling written.
VerifyPass& DecodeLoop::forward(int64_t window, int64_t logit_rows, const SlotStarts& begin, const SlotList& taking, bool fused, bool fed,
                                int64_t media) {
  Span rows = rounds_.all();
  if (rounds_.supports_batch_slices) {
    SlotList slots;
    for (const auto& each : begin) slots.push_back(each.first);
    rows = slot_range(slots);
  }
  const int64_t history = sampler_ ? sampler_->write(rows, taking, logit_rows) : 1;
  const bool logprobs = std::any_of(taking.begin(), taking.end(), [](const Slot* slot) { return slot->sequence->wants_logprobs || scoring(*slot->sequence); });
  const int64_t allowed = masks_ ? masks_->width(taking) : 1;
  const int64_t adjusted = sampler_ ? sampler_->adjusted_width(taking, logit_rows) : 1;
  return rounds_.forward({window, logit_rows, history, allowed, fused, logprobs, fed, rows, media, adjusted});
}

// Note that a run has written its window's rows in all its slots, whatever was accepted.
void DecodeLoop::note_written(const VerifyPass& forward) {
  for (int64_t index = forward.key.rows.start; index < forward.key.rows.stop; ++index) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.written = std::max(slot.written, rounds_.length[index] + forward.key.window);
  }
}

// Write the certain tokens and the counts. In a slot without a part in the run, only entries after the committed tokens may
// change.
void DecodeLoop::write_inputs(VerifyPass& forward, const SlotSpans& parts, const SlotList& decoding) {
  for (int64_t index = forward.key.rows.start; index < forward.key.rows.stop; ++index) {
    const Slot& slot = slots_[static_cast<size_t>(index)];
    rounds_.length[index] = slot.committed_length;
    if (adapters_) adapters_[index] = slot.sequence ? slot.sequence->adapter : 0;
    rounds_.n_given[index] = 0;
  }
  for (const Slot* const slot : decoding) rounds_.n_given[slot->index] = 1;
  for (const auto& [slot, part] : parts) {
    rounds_.length[slot->index] = part.start;
    rounds_.n_given[slot->index] = rounds_.n_total[slot->index] = part.size();
    int64_t* const line = forward.window.ints() + slot->index * forward.window.shape[1];
    for (int64_t place = part.start; place < part.stop; ++place) line[place - part.start] = slot->sequence->token(place);
  }
}

// Run the target, and append the accepted tokens to the sequences in `taking`. Return the seconds since the last lap: those of a
// round without its drafting.
//
// A fused step also drafts: all its time counts as verification.
double DecodeLoop::verify(VerifyPass& forward, const SlotList& taking) {
  const double start = wall_seconds();
  forward.verify();
  seconds.verify += wall_seconds() - start;
  for (Slot* const slot : taking) {
    const int64_t given = rounds_.n_given[slot->index], total = rounds_.n_total[slot->index], end = rounds_.n_path[slot->index];
    check_path(given, end, std::min(forward.key.window, std::min(given, forward.key.window) + rounds_.manifest.depth));
    check_path(given, total, forward.key.window);
    const int64_t* const tokens = forward.path.ints() + slot->index * forward.path.shape[1] + given;
    const size_t count = static_cast<size_t>(end + 1 - given);
    SequenceState& row = *slot->sequence;
    if (audio::RuleMatcher* const rules = scoring(row)) rules->read_logits(forward.token_logits(static_cast<size_t>(slot->index), tokens, count), tokens);
    row.append_tokens(tokens, count, total - given,
                      row.wants_logprobs ? forward.logprobs(static_cast<size_t>(slot->index), tokens, count, row.n_best) : Logprobs());
    slot->is_prefilled = true;
  }
  return watch_.lap();
}

// Advance every slot by its path, which the target's caches hold now. In the middle of a prompt, replace the target's predicted
// next token by the true one for a drafter that needs it (`is_told`).
void DecodeLoop::commit(VerifyPass& forward, const SlotSpans& parts, const SlotStarts& begin, const SlotList& taking) {
  for (const auto& [slot, start] : begin) {
    const int64_t given = rounds_.n_given[slot->index], count = rounds_.n_path[slot->index];
    check_path(given, count, contains(taking, slot) ? forward.key.window : given);  // a prompt goes on as it is
    slot->committed_length = std::max(slot->committed_length, start + count);
    slot->prefill_position = start + count - drafting_.overlap;
  }
  if (!drafting_.is_told) return;
  for (const auto& [slot, part] : parts)
    if (part.stop < slot->sequence->size() && !contains(taking, slot))
      forward.path.ints()[slot->index * forward.path.shape[1] + part.size()] = slot->sequence->token(part.stop);
}

}  // namespace spc
