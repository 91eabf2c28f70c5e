// The runs of a benchmark: every prompt both ways, one right after the other, so that a busy moment of the machine meets
// both (speccompile/measure/bench/measure.py, timed.py, conversation.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../json.h"
#include "../runtime/bundle.h"
#include "bench_prompts.h"

namespace spc::cli {

// A finished generation. Times in seconds; gaps: from the end of the prefill, or of a round, to the end of the next one,
// which gives all its tokens at once.
struct Generation {
  TokenIds token_ids;
  std::string text, finish_reason;
  int64_t prompt_tokens = 0;
  double seconds = 0, prefill = 0, verify = 0, draft = 0;
  std::vector<int64_t> path_lengths, draft_lengths;
  std::vector<double> gaps;

  // From the object of `Session::result`.
  explicit Generation(const Json& result);
  int64_t count() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t rounds() const { return static_cast<int64_t>(path_lengths.size()); }
  double rate() const { return seconds > 0 ? static_cast<double>(count()) / seconds : 0; }
  // Without the prefill and the token that it gives; nothing without a round.
  std::optional<double> decode_rate() const;
  // Return the seconds of the prefill, in which the first draft is made.
  double first_token() const;
  // Return the seconds of the rounds outside of their graphs.
  double host() const { return seconds - prefill - verify - draft; }
  // Return the new tokens of each round, in the order of `gaps`; of the last those before the generation's end.
  std::vector<int64_t> new_tokens() const;
};

using Answers = std::vector<Generation>;  // one a turn
using Repeats = std::vector<Answers>;     // one a repeat
using Generations = std::vector<const Generation*>;

// The first new token that the two ways do not share; nothing for a way that has ended before.
struct Divergence {
  int64_t prompt, turn, index;
  std::optional<int64_t> speculative, autoregressive;
};

// One prompt or question, counted from 1, and its answers. `speculative` is empty without a drafter.
struct PromptRuns {
  int64_t number;
  Repeats speculative, autoregressive;
  std::string group;

  std::optional<Divergence> difference() const;
};

// Generate for every question, `repeats` times both ways, in alternating order, after a warm-up. Throws Error(kPrompt), with
// their numbers, for questions that the bundle cannot take, before any work.
std::vector<PromptRuns> measure(const std::shared_ptr<const Bundle>& bundle, const std::vector<Question>& questions,
                          const Request& options, int64_t max_new_tokens, int64_t repeats);

// All generations of some repeats, the first so many of them.
void add_generations(const Repeats& repeats, size_t most, Generations& to);

}  // namespace spc::cli
