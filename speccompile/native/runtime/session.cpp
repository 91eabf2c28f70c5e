#include "session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "../errors.h"
#include "../files.h"
#include "../operators/float_mode.h"
#include "../progress.h"
#include "first_times.h"

namespace spc {

Session::Session(std::shared_ptr<const Bundle> bundle)
    : bundle_(std::move(bundle)),
      engine_(bundle_->program().open()),
      kept_(*engine_, bundle_->manifest(), bundle_->entry(), bundle_->tokenizer_hash()),
      adapters_(*engine_, bundle_->entry().graphs),
      loop_(*engine_, bundle_->manifest(), bundle_->entry().graphs, bundle_->entry().provider != provider::kCpu),
      saved_(loop_, bundle_->manifest(), SessionKey::of(*bundle_)),
      prefixes_(*bundle_, saved_, loop_),
      times_(bundle_->times_key()) {
  if (const auto known = measured(bundle_->opened().proof, bundle_->entry().name, bundle_->manifest().depth)) loop_.drafting().policy->expect(*known);
  if (bundle_->speculative() && !bundle_->times_key().is_null()) {
    prepare_rounds(loop_, times_);
    kept_.reset();
  }
  if (needs_proposer(bundle_->manifest()) || !gate_config(bundle_->manifest()).is_null()) set_proposer({});
}

void Session::set_proposer(Proposer proposer) {
  const Manifest& manifest = bundle_->manifest();
  if (!needs_proposer(manifest) && gate_config(manifest).is_null()) {
    const Json& kind = manifest.json["plan"]["drafter"]["kind"];
    throw Error(Kind::kUsage,
                "proposer: received one for a bundle of drafter.kind " + (kind.is_text() ? kind.text() : "none") +
                    ", expected none: its graphs draft themselves",
                "build the recipe with drafter.kind or drafter.gate.kind retrieval, or leave the proposer out");
  }
  if (!proposer) proposer = bundle_->proposer();
  state_ = State::kIdle;
  has_proposer_ = static_cast<bool>(proposer);
  loop_.drafting().set_proposer(std::move(proposer));
}

void Session::load_adapter(const std::string& name, const std::string& folder) {
  adapters_.load(name, folder);
  state_ = State::kIdle;
}

void Session::unload_adapter(const std::string& name) {
  adapters_.unload(name);
  state_ = State::kIdle;
}

void Session::save(const std::string& path) {
  if (state_ == State::kRunning && steps_) {
    loop_.leave();
    state_ = State::kFinished;
  }
  const speccompile::FloatMode mode;  // states that cannot go back are made again
  saved_.save(plain_path(path));
}

const TokenIds& Session::load(const std::string& path, const std::optional<std::string>& adapter) {
  std::optional<std::string> key;
  if (adapter) key = adapter->empty() ? "" : adapters_.find(*adapter).key;
  loaded_ = saved_.load(plain_path(path), key);
  state_ = State::kIdle;
  return loaded_;
}

void Session::start(const Request& request) {
  const Manifest& manifest = bundle_->manifest();
  const Options options = check_options(request, manifest);
  if (!request.stop.empty()) bundle_->require_tokenizer("this bundle has no tokenizer, so no text to stop at", "leave --stop out");
  Rows rows;
  if (!request.adapters.empty() && request.adapters.rbegin()->first >= request.prompts.size())
    throw Error(Kind::kUsage, "adapter: received one for prompt " + std::to_string(request.adapters.rbegin()->first + 1) + " of " + std::to_string(request.prompts.size()),
                "the first prompt is 0; SPC_ALL is all");
  for (size_t number = 0; number < request.prompts.size(); ++number) {
    const TokenIds ids = bundle_->token_ids(request.prompts[number], options.chat);
    const auto own = request.adapters.find(number);
    const std::string& adapter = own == request.adapters.end() ? request.adapter : own->second;
    const Adapters::Loaded loaded = adapter.empty() ? Adapters::Loaded{0, ""} : adapters_.find(adapter);
    for (int64_t i = 0; i < options.sequences; ++i) {
      rows.emplace_back(ids, options, options.samplings[rows.size()], manifest.max_length, manifest.eos_token_ids, bundle_->text(), request.stop);
      rows.back().adapter = loaded.slot;
      rows.back().adapter_key = loaded.key;
    }
  }
  state_ = State::kIdle;
  rows_.swap(rows);
  shown_.assign(rows_.size(), {});
  seconds_.clear();
  steps_ = 0;
  speculative_ = (bundle_->speculative() || has_proposer_) && !options.autoregressive;
  if (needs_proposer(manifest) && !has_proposer_ && !options.autoregressive)
    warn("note: this bundle drafts by a proposer, and none is given: one token a round\n"
         "hint: spc_session_propose gives one, or build with drafter.index");
  engine_->resume();
  if (rows_.size() == 1 && !rows_[0].adapter) loop_.resume = prefixes_.resume(rows_[0].prompt, std::move(loop_.resume));
  loop_.begin(rows_, speculative_, options.adaptive);
  state_ = State::kRunning;
}

bool Session::step() {
  if (state_ == State::kIdle) throw Error(Kind::kUsage, "received a step before a request, expected one that was started", "start the session first");
  if (state_ == State::kFinished) return false;
  std::vector<SequenceState::Snapshot> marks;
  for (const SequenceState& row : rows_) marks.push_back(row.snapshot());
  const speccompile::FloatMode mode;
  ++steps_;
  const double start = wall_seconds();
  state_ = State::kIdle;  // unless this step comes to its end
  const auto undo = [&] {
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].restore(marks[i]);
  };
  try {
    loop_.step();
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
  times_.update(loop_.drafting().policy->measured_times());
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
  const size_t rounds = row.path_lengths.empty() ? 0 : row.path_lengths.size() - 1;
  const double seconds = std::accumulate(seconds_.begin(), seconds_.end(), 0.0), count = static_cast<double>(row.token_ids.size());
  Json found(Json::Object{
      {"text", row.has_text() ? Json(row.text) : Json()},
      {"token_ids", list_of(row.token_ids)},
      {"prompt_tokens", Json(static_cast<int64_t>(row.prompt.size()))},
      {"rounds", Json(static_cast<int64_t>(rounds))},
      {"mean_accepted", rounds ? Json((count - 1) / static_cast<double>(rounds)) : Json()},
      {"seconds", seconds},
      {"tokens_per_second", seconds > 0 ? count / seconds : 0.0},
      {"finish_reason", row.finish_reason},
      {"mode", speculative_ ? mode::kSpeculative : mode::kAutoregressive},
      {"engine", bundle_->entry().name},
      {"exact", bundle_->exact()},
      {"kernels", bundle_->kernels().empty() ? Json() : Json(bundle_->kernels())},
      {"seed", row.sampling.temperature > 0 ? Json(row.sampling.seed) : Json()},
  });
  if (row.wants_logprobs) found.set("logprobs", list_of(row.logprobs));
  found.set("prefill_seconds", loop_.seconds.prefill);
  found.set("cached_tokens", rows_.size() == 1 ? loop_.reused : int64_t{0});
  std::optional<double> speedup;
  if (rows_.size() == 1 && rounds)
    speedup = loop_.drafting().policy->estimated_speedup({row.draft_lengths.begin() + 1, row.draft_lengths.end()}, count - 1);
  found.set("estimated_speedup", speedup ? Json(*speedup) : Json());
  found.set("verify_seconds", loop_.seconds.verify);
  found.set("draft_seconds", loop_.seconds.draft);
  found.set("path_lengths", list_of(row.path_lengths, 1));
  found.set("draft_lengths", list_of(row.draft_lengths, 1));
  found.set("round_seconds", list_of(seconds_, 1, rounds));
  return found;
}

}  // namespace spc
