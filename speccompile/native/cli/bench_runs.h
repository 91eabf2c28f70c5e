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

// A finished generation: the object of `Session::result`, and what the table and the next turn need of it. Times in seconds.
struct Generation {
  Json result;
  TokenIds token_ids;
  std::string text;
  int64_t prompt_tokens = 0, rounds = 0;
  double seconds = 0, prefill = 0, first_token = 0;  // first_token: of the prefill, in which the first draft is made

  explicit Generation(const Json& result);
  int64_t count() const { return static_cast<int64_t>(token_ids.size()); }
  double rate() const { return seconds > 0 ? static_cast<double>(count()) / seconds : 0; }
  // Return the tokens per second without the prefill and its token; nothing without a round.
  std::optional<double> decode_rate() const;
};

using Answers = std::vector<Generation>;  // one a turn
using Repeats = std::vector<Answers>;     // one a repeat
using Generations = std::vector<const Generation*>;

double median(std::vector<double> values);

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
