#include "generation.h"

#include <algorithm>
#include <utility>

namespace spc {

Row::Row(TokenIds prompt, const Options& options, const Sampling& sampling, int64_t capacity, std::vector<int64_t> ends,
         std::shared_ptr<const Text> text, std::vector<std::string> stop)
    : prompt(std::move(prompt)),
      sampling(sampling),
      wants_logprobs(options.logprobs),
      ends_(std::move(ends)),
      tokenizer_(std::move(text)),
      stop_(std::move(stop)) {
  const int64_t left = capacity - static_cast<int64_t>(this->prompt.size());
  room = std::min(options.max_new_tokens, left);
  reason_when_full_ = options.max_new_tokens <= left ? finish::kLength : finish::kCapacity;
  if (!room) finish_reason = reason_when_full_;
  if (tokenizer_) stream_.emplace(tokenizer_, this->prompt, stop_);
}

int64_t Row::token(int64_t place) const {
  const size_t at = static_cast<size_t>(place);
  return at < prompt.size() ? prompt[at] : token_ids[at - prompt.size()];
}

TokenIds Row::whole() const {
  TokenIds all = prompt;
  all.insert(all.end(), token_ids.begin(), token_ids.end());
  return all;
}

void Row::take(const int64_t* tokens, size_t count, int64_t drafts, const std::vector<double>& new_logprobs) {
  path_lengths.push_back(static_cast<int64_t>(count));
  draft_lengths.push_back(drafts);
  count = std::min(count, static_cast<size_t>(room) - token_ids.size());
  for (size_t i = 0; i < count && active(); ++i) {
    if (std::find(ends_.begin(), ends_.end(), tokens[i]) == ends_.end()) continue;
    count = i + 1;
    finish_reason = finish::kStop;
  }
  token_ids.insert(token_ids.end(), tokens, tokens + count);
  if (wants_logprobs) logprobs.insert(logprobs.end(), new_logprobs.begin(), new_logprobs.begin() + static_cast<std::ptrdiff_t>(count));
  if (stream_ && stream_->has_stop()) read();
  if (active() && static_cast<int64_t>(token_ids.size()) == room) finish_reason = reason_when_full_;
  if (!active()) read();
}

void Row::read() {
  if (!stream_) return;
  const bool has_ended = !active();
  if (n_read_ < token_ids.size())
    text += stream_->push(TokenIds(token_ids.begin() + static_cast<std::ptrdiff_t>(n_read_), token_ids.end()));
  n_read_ = token_ids.size();
  if (stream_->stopped()) {
    token_ids.resize(stream_->kept());
    if (wants_logprobs) logprobs.resize(token_ids.size());
    n_read_ = token_ids.size();
  }
  if (has_ended || stream_->stopped()) text += stream_->finish();
  if (stream_->stopped()) finish_reason = finish::kStop;  // by the last character perhaps, whose other bytes never came
}

void Row::cancel(const Mark& mark) {
  token_ids.resize(mark.tokens);
  path_lengths.resize(mark.rounds);
  draft_lengths.resize(mark.rounds);
  if (wants_logprobs) logprobs.resize(mark.tokens);
  finish_reason = mark.finish_reason.empty() ? finish::kCancelled : mark.finish_reason;
  if (!stream_ || !mark.finish_reason.empty()) return;
  stream_.emplace(tokenizer_, prompt, stop_);
  text = stream_->push(token_ids);
  n_read_ = token_ids.size();
}

}  // namespace spc
