// Tokens that a transcript may have: some are never written, others do not begin one, and times come in pairs (runtime/audio/rules.py).
// The masks of a round's nodes are known with its drafts. The last rule of times needs logits, and is part of the graph.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "../bundle/manifest.h"

namespace spc::audio {

// State of a text for the rules of times. size: number of its tokens; ends_in_time: its last token is a time; was_time: so is the one
// before, or there is none; time: its last time, a token.
struct Written {
  int64_t size = 0;
  bool ends_in_time = false, was_time = true;
  std::optional<int64_t> time;
};

// Rules of times, as of transformers' WhisperTimeStampLogitsProcessor. first: token of the time 0.00; max_initial: largest first time;
// end: first token that is no text.
struct TimeRules {
  int64_t first = 0;
  std::optional<int64_t> max_initial;
  int64_t end = 0;

  // Return the rules of a bundle whose target hears. Throws Error(kUsage) for one that writes no times.
  static TimeRules of(const Manifest& manifest);

  // Return the state after a token.
  Written after(const Written& written, int64_t token) const;
  // Set the tokens that may not follow to false.
  void forbid(uint8_t* allowed, int64_t size, const Written& written) const;
  // Set the logits of text to minus infinity where all times together are more probable than every other token.
  void hide_text(std::vector<float>& logits) const;
};

// Masks [V] of the tokens that may begin a text, and of those that may follow; and the rules of times, if it has any. Never changes.
class TokenRules {
 public:
  // Return the rules of a bundle whose target hears. timed: of a text with times. Throws Error(kUsage) where the target writes none.
  static std::shared_ptr<const TokenRules> of(const Manifest& manifest, bool timed = false);
  // Return rules under which every token is one of these; any, if there are none.
  static std::shared_ptr<const TokenRules> only(const std::vector<int64_t>& tokens, int64_t size);

  Written after(const Written& written, int64_t token) const;
  // Write the tokens that may follow into bool [V].
  void allow(uint8_t* allowed, const Written& written) const;
  // Return logits [V] after what is written, minus infinity at the tokens that may not follow.
  std::vector<float> apply(const float* logits, const Written& written) const;
  int64_t size() const { return static_cast<int64_t>(later_.size()); }
  const std::optional<TimeRules>& times() const { return times_; }

 private:
  std::vector<uint8_t> first_, later_;
  std::optional<TimeRules> times_;
};

// Tokens of one sequence under rules.
class RuleMatcher {
 public:
  // reads_logits: keep the log-probability of each token among those that were possible, see `scores`.
  explicit RuleMatcher(std::shared_ptr<const TokenRules> rules, bool reads_logits = false) : reads_logits(reads_logits), rules_(std::move(rules)) {}

  // Return whether the text has times.
  bool writes_times() const { return rules_->times().has_value(); }
  // Advance by tokens that were chosen among the allowed ones.
  void accept_tokens(const int64_t* tokens, size_t count);
  // Keep the log-probabilities of tokens that will be accepted. logits: [V] before each of them.
  void read_logits(const std::vector<const float*>& logits, const int64_t* tokens);
  // Write the tokens that may follow every node of a round into bool [rows, V]. drafts: tokens of node 1, 2, ..; parents: of all nodes.
  void write(uint8_t* allowed, int64_t rows, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) const;

  const bool reads_logits;
  // Natural logarithm of the probability of each token that was chosen, under the rules, at temperature 1.
  std::vector<double> scores;
  // Logits [V] of the first token, without rules; none unless it reads logits.
  std::vector<float> first_logits;

 private:
  const std::shared_ptr<const TokenRules> rules_;
  Written written_;
};

}  // namespace spc::audio
