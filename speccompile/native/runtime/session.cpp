#include "session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "../errors.h"
#include "../files.h"
#include "../operators/float_mode.h"
#include "../progress.h"

namespace spc {

Session::Session(std::shared_ptr<const Bundle> bundle) : decoder_(std::move(bundle)) {}

void Session::set_proposer(Proposer proposer) {
  decoder_.set_proposer(std::move(proposer));
  state_ = State::kIdle;
}

void Session::load_adapter(const std::string& name, const std::string& folder) {
  decoder_.adapters.load(name, folder);
  state_ = State::kIdle;
}

void Session::unload_adapter(const std::string& name) {
  decoder_.adapters.unload(name);
  state_ = State::kIdle;
}

void Session::save(const std::string& path) {
  if (state_ == State::kRunning && steps_) {
    decoder_.loop.leave();
    state_ = State::kFinished;
  }
  const speccompile::FloatMode mode;  // for runs of the target: recurrent states that cannot go back are computed again
  decoder_.saved.save(plain_path(path));
}

const TokenIds& Session::load(const std::string& path, const std::optional<std::string>& adapter, bool is_replaced) {
  std::optional<std::string> key;
  if (adapter) key = adapter->empty() ? "" : decoder_.adapters.find(*adapter).key;
  loaded_ = decoder_.saved.load(plain_path(path), key, is_replaced);
  state_ = State::kIdle;
  return loaded_;
}

void Session::start(const Request& request) {
  const Manifest& manifest = decoder_.bundle->manifest();
  auto [options, rows] = decoder_.make_sequences(request, true);
  state_ = State::kIdle;
  rows_.swap(rows);
  shown_.assign(rows_.size(), {});
  seconds_.clear();
  steps_ = 0;
  speculative_ = decoder_.can_draft() && !options.autoregressive;
  if (needs_proposer(manifest) && !decoder_.has_proposer && !options.autoregressive)
    warn("note: this bundle drafts by a proposer, and none is given: one token a round\n"
         "hint: spc_session_propose gives one, or build with drafter.index");
  decoder_.engine->resume();
  DecodeLoop& loop = decoder_.loop;
  if (rows_.size() == 1 && !rows_[0].adapter) loop.resume = decoder_.prefixes.resume(rows_[0].prompt_identity(), std::move(loop.resume));
  loop.starts = shipped_prefixes();
  loop.begin(rows_, speculative_, options.adaptive);
  state_ = State::kRunning;
}

// Restore the longest prefix of the bundle for each of several prompts into its slot. Return what the slots hold.
std::map<int64_t, SlotContent> Session::shipped_prefixes() {
  std::map<int64_t, SlotContent> starts;
  for (size_t row = 0; rows_.size() > 1 && row < rows_.size(); ++row) {
    const auto slot = static_cast<int64_t>(row);
    if (rows_[row].adapter) continue;
    std::optional<SlotContent> found = decoder_.prefixes.restore(rows_[row].prompt_identity(), slot, 0);
    if (found) starts.emplace(slot, std::move(*found));
  }
  return starts;
}

bool Session::step() {
  if (state_ == State::kIdle) throw Error(Kind::kUsage, "received a step before a request, expected one that was started", "start the session first");
  if (state_ == State::kFinished) return false;
  std::vector<SequenceState::Snapshot> snapshots;
  for (const SequenceState& row : rows_) snapshots.push_back(row.snapshot());
  const speccompile::FloatMode mode;
  ++steps_;
  const double start = wall_seconds();
  state_ = State::kIdle;  // stays if the step throws
  const auto undo = [&] {
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].restore(snapshots[i]);
  };
  try {
    decoder_.loop.step();
  } catch (const Error& error) {
    if (error.kind == Kind::kCancelled) state_ = State::kFinished;
    undo();
    throw;
  } catch (...) {
    undo();
    throw;
  }
  state_ = State::kRunning;
  seconds_.push_back(wall_seconds() - start);
  if (std::any_of(rows_.begin(), rows_.end(), [](const SequenceState& row) { return row.is_active(); })) return true;
  state_ = State::kFinished;
  decoder_.times.update(decoder_.loop.drafting().policy->measured_times());
  return false;
}

const SequenceState& Session::at(size_t row) const {
  if (row < rows_.size()) return rows_[row];
  throw Error(Kind::kUsage, "received row " + std::to_string(row) + ", expected one of " + std::to_string(rows_.size()),
              "a row is a sequence of a prompt of the request, from 0 on");
}

const std::string& Session::new_text(size_t row) {
  at(row);
  Delivered& shown = shown_[row];
  if (shown.text_step != steps_) {
    rows_[row].read();
    shown.piece = rows_[row].text.substr(std::min(shown.text, rows_[row].text.size()));
    shown.text = rows_[row].text.size();
    shown.text_step = steps_;
  }
  return shown.piece;
}

const TokenIds& Session::new_tokens(size_t row) {
  const TokenIds& all = at(row).token_ids;
  Delivered& shown = shown_[row];
  if (shown.tokens_step != steps_) {
    shown.ids.assign(all.begin() + static_cast<std::ptrdiff_t>(std::min(shown.tokens, all.size())), all.end());
    shown.tokens = all.size();
    shown.tokens_step = steps_;
  }
  return shown.ids;
}

Json Session::result(size_t index) {
  at(index);
  SequenceState& row = rows_[index];
  row.read();
  DecodeLoop& loop = decoder_.loop;
  const size_t rounds = row.path_lengths.empty() ? 0 : row.path_lengths.size() - 1;  // without the prefill
  const size_t steps = std::min(seconds_.size(), rounds + 1);
  GenerationTimes times;
  times.seconds = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  times.prefill = loop.seconds.prefill;
  times.verify = loop.seconds.verify;
  times.draft = loop.seconds.draft;
  if (steps > 1) times.rounds.assign(seconds_.begin() + 1, seconds_.begin() + static_cast<std::ptrdiff_t>(steps));
  const auto reused = loop.reused.find(static_cast<int64_t>(index));
  if (reused != loop.reused.end()) times.cached_tokens = reused->second;
  if (rows_.size() == 1 && rounds) {
    const std::vector<int64_t> drafted(row.draft_lengths.begin() + 1, row.draft_lengths.end());
    times.estimated_speedup = loop.drafting().policy->estimated_speedup(drafted, static_cast<int64_t>(row.token_ids.size()) - 1);
  }
  return generation_json(*decoder_.bundle, row, times, speculative_);
}

}  // namespace spc
