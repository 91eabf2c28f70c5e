#include "generation.h"

#include <algorithm>
#include <utility>

#include "../audio/rules.h"
#include "../constraints/matcher.h"
#include "../images/media.h"
#include "sources.h"

namespace spc {

SequenceState::SequenceState(TokenIds prompt, const Options& options, const SamplingParams& sampling, int64_t capacity, std::vector<int64_t> ends,
         std::shared_ptr<const Text> text, std::vector<std::string> stop)
    : prompt(std::move(prompt)),
      sampling(sampling),
      wants_logprobs(options.logprobs || options.top_logprobs),
      n_best(options.top_logprobs),
      ends_(std::move(ends)),
      tokenizer_(std::move(text)),
      stop_(std::move(stop)) {
  const int64_t left = capacity - static_cast<int64_t>(this->prompt.size());
  max_new_tokens = std::min(options.max_new_tokens, left);
  length_finish_reason_ = options.max_new_tokens <= left ? finish::kLength : finish::kCapacity;
  if (!max_new_tokens) finish_reason = length_finish_reason_;
  if (tokenizer_) stream_.emplace(tokenizer_, this->prompt, stop_);
}

int64_t SequenceState::token(int64_t place) const {
  const size_t at = static_cast<size_t>(place);
  return at < prompt.size() ? prompt[at] : token_ids[at - prompt.size()];
}

TokenIds SequenceState::all_token_ids() const {
  TokenIds all = prompt;
  all.insert(all.end(), token_ids.begin(), token_ids.end());
  return all;
}

const std::string& SequenceState::source_key() const {
  static const std::string none;
  return source ? source->key : none;
}

const TokenIds& SequenceState::prompt_identity() const { return media ? media->identity() : prompt; }

TokenIds SequenceState::identity() const {
  TokenIds all = prompt_identity();
  all.insert(all.end(), token_ids.begin(), token_ids.end());
  return all;
}

void SequenceState::append_tokens(const int64_t* tokens, size_t count, int64_t drafts, const Logprobs& new_logprobs) {
  path_lengths.push_back(static_cast<int64_t>(count));
  draft_lengths.push_back(drafts);
  count = std::min(count, static_cast<size_t>(max_new_tokens) - token_ids.size());
  if (matcher) count = matcher->accept_tokens(tokens, count);
  for (size_t i = 0; i < count && is_active(); ++i) {
    if (std::find(ends_.begin(), ends_.end(), tokens[i]) == ends_.end()) continue;
    count = i + 1;
    finish_reason = finish::kStop;
  }
  token_ids.insert(token_ids.end(), tokens, tokens + count);
  if (rules) rules->accept_tokens(tokens, count);
  if (wants_logprobs) {
    const auto kept = static_cast<std::ptrdiff_t>(count);
    logprobs.insert(logprobs.end(), new_logprobs.chosen.begin(), new_logprobs.chosen.begin() + kept);
    top_logprobs.insert(top_logprobs.end(), new_logprobs.best.begin(), new_logprobs.best.begin() + kept);
  }
  if (matcher && is_active()) finish_reason = matcher->end();
  if (stream_ && stream_->has_stop()) read();
  if (is_active() && static_cast<int64_t>(token_ids.size()) == max_new_tokens) finish_reason = length_finish_reason_;
  if (!is_active()) read();
}

void SequenceState::finish(const std::string& reason) {
  finish_reason = reason;
  read();
}

void SequenceState::cut(size_t count) {
  token_ids.resize(count);
  if (!wants_logprobs) return;
  logprobs.resize(count);
  top_logprobs.resize(count);
}

void SequenceState::read() {
  if (!stream_) return;
  const bool has_ended = !is_active();
  if (n_read_ < token_ids.size())
    text += stream_->push(TokenIds(token_ids.begin() + static_cast<std::ptrdiff_t>(n_read_), token_ids.end()));
  n_read_ = token_ids.size();
  if (stream_->stopped()) {
    cut(stream_->kept());
    n_read_ = token_ids.size();
  }
  if (has_ended || stream_->stopped()) text += stream_->finish();
  if (stream_->stopped()) finish_reason = finish::kStop;  // by the last character perhaps, whose other bytes never came
}

void SequenceState::restore(const Snapshot& mark) {
  cut(mark.tokens);
  path_lengths.resize(mark.rounds);
  draft_lengths.resize(mark.rounds);
  finish_reason = mark.finish_reason.empty() ? finish::kCancelled : mark.finish_reason;
  if (!stream_ || !mark.finish_reason.empty()) return;
  stream_.emplace(tokenizer_, prompt, stop_);
  text = stream_->push(token_ids);
  n_read_ = token_ids.size();
}

}  // namespace spc
