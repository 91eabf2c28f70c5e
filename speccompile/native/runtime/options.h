// Sampling parameters and other options of a generation: the checked options of `generate_batch` (runtime/options.py).
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "../bundle/manifest.h"
#include "../images/pixels.h"
#include "../text/text.h"
#include "sampling_table.h"

namespace spc::audio {
struct Sound;
struct Features;
class RuleMatcher;
}

namespace spc::constraints {
class Constraint;
}

namespace spc {

// Number as given by the caller: whole numbers keep their 64 bits.
struct Value {
  bool is_whole = false;
  uint64_t whole = 0;
  double number = 0;

  static Value of(uint64_t whole) { return {true, whole, static_cast<double>(whole)}; }
  static Value of(double number) { return {false, 0, number}; }
  std::string repr() const;  // like Python's repr
};

using Prompt = std::variant<std::string, TokenIds>;
using LogitBias = std::map<int64_t, double>;
using SoundPtr = std::shared_ptr<const audio::Sound>;

// One value for all prompts, or one per prompt.
struct Setting {
  std::optional<Value> all;
  std::vector<std::optional<Value>> each;

  std::optional<Value> of(size_t prompt) const;
};

// Prompts and options as given by the caller. Names of options are checked when they are set, their ranges at the start.
class Request {
 public:
  // prompt: an index, or kAll.
  static constexpr size_t kAll = static_cast<size_t>(-1);
  // Throws Error(kUsage) for a name that is no option.
  void set(size_t prompt, const std::string& name, Value value);
  // Set an option that is a text, of all prompts. Throws Error(kUsage) for a name that is none.
  void set_text(const std::string& name, const std::string& value);
  // Set what is added to the logit of a token, of a prompt or of all (kAll).
  void set_logit_bias(size_t prompt, int64_t token, double bias);
  // Set the source of a prompt, or of all (kAll).
  void set_source(size_t prompt, Prompt source);
  // Set the sound of a prompt, or of all (kAll).
  void set_audio(size_t prompt, SoundPtr sound);
  // Return the number of prompts; without any that of the sources or sounds, since answers begin by themselves.
  size_t n_prompts() const;

  std::vector<Prompt> prompts;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  std::shared_ptr<const constraints::Constraint> constraint;  // of all prompts, null for none
  // Names of adapters: for all prompts, and per prompt; "" is the base.
  std::string adapter;
  std::map<size_t, std::string> adapters;
  std::map<size_t, std::vector<images::GivenPicture>> images;  // of each prompt, in their order
  // Sources of a target with an encoder, for all prompts and by prompt; and the languages of sources and answers.
  std::optional<Prompt> source;
  std::map<size_t, Prompt> sources;
  std::optional<std::string> source_language, target_language;
  Setting sampling[std::size(kSamplingOptions)];  // in the order of that table
  // What is added to the logits of tokens, for all prompts and by prompt.
  LogitBias logit_bias;
  std::map<size_t, LogitBias> logit_biases;
  Setting max_new_tokens, num_return_sequences, autoregressive, adaptive, logprobs, top_logprobs, ignore_eos, chat, truncate;
  // Sounds of a target that hears, for all prompts and by prompt; and its task: transcribe, the default, or translate.
  std::optional<SoundPtr> audio;
  std::map<size_t, SoundPtr> sounds;
  std::optional<std::string> task;
  // For one window of a transcript: its features, in place of `audio`; and the rules that its only text follows, in place of the
  // target's own. Null for others.
  std::shared_ptr<const audio::Features> features;
  std::shared_ptr<audio::RuleMatcher> rules;
};

// Checked options. sequences: number per prompt; ends: tokens that end a sequence; samplings: parameters of every row; truncate:
// drop the first tokens of a prompt that leaves no room for the new ones.
struct Options {
  int64_t max_new_tokens = kNewTokens, sequences = 1, top_logprobs = 0;
  std::vector<int64_t> ends;
  bool autoregressive = false, adaptive = true, logprobs = false, chat = false, truncate = false;
  std::vector<SamplingParams> samplings;
};

// Check a request. side_by_side: whether all sequences need a batch slot of the bundle at once. Throws Error(kUsage) or
// Error(kPrompt), in the order and wording of the Python runtime.
Options check_options(const Request& request, const Manifest& manifest, bool side_by_side = true);

}  // namespace spc
