// How rows sample, and what else is asked of a generation: the options of `generate_batch`, checked (runtime/options.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "../bundle/manifest.h"
#include "../text/text.h"

namespace spc {

// How one row samples.
struct SamplingParams {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  uint64_t seed = 0, sequence = 0;
};

// A number as it was given: whole ones keep their 64 bits.
struct Value {
  bool is_whole = false;
  uint64_t whole = 0;
  double number = 0;

  static Value of(uint64_t whole) { return {true, whole, static_cast<double>(whole)}; }
  static Value of(double number) { return {false, 0, number}; }
  std::string repr() const;  // as Python would show it
};

using Prompt = std::variant<std::string, TokenIds>;

// One value for all prompts, or one for each.
struct Setting {
  std::optional<Value> all;
  std::vector<std::optional<Value>> each;

  std::optional<Value> of(size_t prompt) const;
};

// Prompts and options, as they were given. Names of options and their ranges are checked when they are set or started.
class Request {
 public:
  // prompt: an index, or kAll.
  static constexpr size_t kAll = static_cast<size_t>(-1);
  // Throws Error(kUsage) for a name that is no option.
  void set(size_t prompt, const std::string& name, Value value);

  std::vector<Prompt> prompts;
  std::vector<std::string> stop;
  Setting temperature, top_k, top_p, min_p, repetition_penalty, seed;
  Setting max_new_tokens, num_return_sequences, autoregressive, adaptive, logprobs, chat;
};

// What is checked before anything runs. sequences: of each prompt; samplings: of every row.
struct Options {
  int64_t max_new_tokens = kNewTokens, sequences = 1;
  bool autoregressive = false, adaptive = true, logprobs = false, chat = false;
  std::vector<SamplingParams> samplings;
};

// Throws Error(kUsage) or Error(kPrompt), in the order and the words of Python's.
Options check_options(const Request& request, const Manifest& manifest);

}  // namespace spc
