// State of each sequence of a batch, and its finish reason (runtime/generation.py).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../text/text.h"
#include "logprobs.h"
#include "options.h"

namespace spc::constraints {
class Matcher;
}

namespace spc::images {
class SequenceMedia;
}

namespace spc {

struct Source;

namespace audio {
class RuleMatcher;
}

// State of one sequence: prompt, new tokens, finish reason.
class SequenceState {
 public:
  // capacity: maximum tokens, prompt and new together, of the buffers. text: tokenizer, or null.
  SequenceState(TokenIds prompt, const Options& options, const SamplingParams& sampling, int64_t capacity, std::vector<int64_t> ends,
      std::shared_ptr<const Text> text, std::vector<std::string> stop);

  bool is_active() const { return finish_reason.empty(); }
  // Return the number of tokens, prompt and new together.
  int64_t size() const { return static_cast<int64_t>(prompt.size() + token_ids.size()); }
  int64_t token(int64_t place) const;
  TokenIds all_token_ids() const;
  // Return the prompt, with ids of their content for pictures: equal for prompts that leave equal caches alone; and with the new tokens.
  const TokenIds& prompt_identity() const;
  TokenIds identity() const;
  // Append the tokens of a round, up to the end of the generation, and their logprobs. drafts: number of verified drafts.
  void append_tokens(const int64_t* tokens, size_t count, int64_t drafts, const Logprobs& new_logprobs);
  // End the sequence for an external reason.
  void finish(const std::string& reason);
  // Decode the remaining tokens: `text` is then complete.
  void read();
  bool has_text() const { return stream_.has_value(); }

  // Snapshot of the state, to which `restore` returns: a cancelled round leaves no trace.
  struct Snapshot {
    size_t tokens, rounds, text;
    std::string finish_reason;
  };
  Snapshot snapshot() const { return {token_ids.size(), path_lengths.size(), text.size(), finish_reason}; }
  void restore(const Snapshot& mark);

  const TokenIds prompt;
  const SamplingParams sampling;
  const bool wants_logprobs;
  const int64_t n_best;  // most probable tokens to keep at each position
  int64_t adapter = 0;      // slot of the adapter of the target, 0 for the base
  std::string adapter_key;  // of that adapter: see `Adapters`; "" for the base
  std::shared_ptr<constraints::Matcher> matcher;  // state of the new tokens in the constraint
  std::shared_ptr<audio::RuleMatcher> rules;      // state of the new tokens under the rules of a target that hears; null without
  std::shared_ptr<images::SequenceMedia> media;   // pictures of the prompt; null without
  std::shared_ptr<const Source> source;           // of a target with an encoder; null without
  // Return the key of the source, "" without one: rows of the caches depend on it.
  const std::string& source_key() const;
  int64_t truncated_tokens = 0;  // that the prompt lost at its start
  TokenIds token_ids;
  int64_t max_new_tokens;
  std::string finish_reason;  // "" while the row is active; length | stop | capacity, or cancelled
  std::string text;           // decoded so far
  std::vector<double> logprobs;
  std::vector<BestTokens> top_logprobs;
  std::vector<int64_t> path_lengths, draft_lengths;  // per round; the prefill's single token comes first

 private:
  // Keep the first `count` tokens alone.
  void cut(size_t count);

  const std::vector<int64_t> ends_;
  const std::shared_ptr<const Text> tokenizer_;
  const std::vector<std::string> stop_;
  const char* length_finish_reason_;
  std::optional<IncrementalDetokenizer> stream_;
  size_t n_read_ = 0;
};

using Rows = std::vector<SequenceState>;

}  // namespace spc
