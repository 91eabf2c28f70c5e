#include "options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../errors.h"
#include "../words.h"
#include "random.h"
#include "sampling_inputs.h"

namespace spc {
namespace {

// Options with one value for the whole request.
struct Whole {
  const char* name;
  Setting Request::*setting;
};
constexpr Whole kWholes[] = {{"max_new_tokens", &Request::max_new_tokens}, {"num_return_sequences", &Request::num_return_sequences},
                             {"autoregressive", &Request::autoregressive}, {"adaptive", &Request::adaptive},
                             {"logprobs", &Request::logprobs},             {"top_logprobs", &Request::top_logprobs},
                             {"ignore_eos", &Request::ignore_eos},         {"chat", &Request::chat},
                             {"truncate", &Request::truncate}};

// Show a whole number as such: below zero it comes as a double.
std::string whole_repr(const Value& value) {
  const bool is_whole = !value.is_whole && value.number == std::floor(value.number) && std::fabs(value.number) < 0x1p53;
  return is_whole ? std::to_string(static_cast<int64_t>(value.number)) : value.repr();
}

void check(const SamplingOption& option, const std::string& where, const Value& value) {
  const bool is_number = option.kind == SamplingKind::kNumber;
  if (!(is_number || value.is_whole) || !(value.number >= option.least && value.number <= option.greatest))
    throw Error(Kind::kUsage, where + ": received " + (is_number ? value.repr() : whole_repr(value)) + ", expected " + option.expected,
                option.hint);
  if (std::string(option.name) == "temperature" && value.number > 0 && value.number < kMinTemperature)
    throw Error(Kind::kUsage, where + ": received " + value.repr() + ", expected 0, or 0.0001 or more", option.hint);
}

void check_all(const Request& request, size_t prompts) {
  for (size_t number = 0; number < std::size(kSamplingOptions); ++number) {
    const SamplingOption& option = kSamplingOptions[number];
    const Setting& setting = request.sampling[number];
    if (setting.all) check(option, option.name, *setting.all);
    if (setting.each.size() > prompts)
      throw Error(Kind::kUsage,
                  std::string(option.name) + ": received a value for prompt " + std::to_string(setting.each.size()) + " of " + std::to_string(prompts),
                  "give a single value for all prompts");
    for (size_t i = 0; i < setting.each.size(); ++i)
      if (setting.each[i]) check(option, std::string(option.name) + " of prompt " + std::to_string(i + 1), *setting.each[i]);
  }
}

// Return the biases of a prompt.
const LogitBias& biases_of(const Request& request, size_t prompt) {
  const auto own = request.logit_biases.find(prompt);
  return own == request.logit_biases.end() ? request.logit_bias : own->second;
}

bool is_any(const LogitBias& biases) {
  return std::any_of(biases.begin(), biases.end(), [](const auto& each) { return each.second != 0; });
}

std::string repr_of(const LogitBias& biases) {
  return "{" + comma_separated(biases, [](const auto& each) { return std::to_string(each.first) + ": " + Value::of(each.second).repr(); }) + "}";
}

void check_biases(const std::string& where, const LogitBias& biases, int64_t vocabulary) {
  const auto refuse = [](const std::string& place, const std::string& received, const std::string& expected) {
    throw Error(Kind::kUsage, place + ": received " + received + ", expected " + expected, "as in {262: -100}, which keeps token 262 out");
  };
  if (static_cast<int64_t>(biases.size()) > kMostBiases) refuse(where, std::to_string(biases.size()) + " tokens", "at most " + std::to_string(kMostBiases));
  const std::string most = std::to_string(kLargestBias);
  for (const auto& [token, bias] : biases) {
    if (token < 0 || token >= vocabulary) refuse(where, std::to_string(token), "token ids from 0 to " + std::to_string(vocabulary - 1));
    if (!(std::fabs(bias) <= static_cast<double>(kLargestBias)))
      refuse(where + " of token " + std::to_string(token), Value::of(bias).repr(), "a number from -" + most + " to " + most);
  }
}

void check_all_biases(const Request& request, size_t prompts, int64_t vocabulary) {
  check_biases(kLogitBias, request.logit_bias, vocabulary);
  for (const auto& [prompt, biases] : request.logit_biases) {
    if (prompt >= prompts)
      throw Error(Kind::kUsage, std::string(kLogitBias) + ": received a value for prompt " + std::to_string(prompt + 1) + " of " + std::to_string(prompts),
                  "give a single value for all prompts");
    check_biases(std::string(kLogitBias) + " of prompt " + std::to_string(prompt + 1), biases, vocabulary);
  }
}

// Throws for options that a bundle without inputs for them would have to ignore.
void refuse_adjustments(const Request& request, size_t prompts) {
  const auto refuse = [](const char* name) {
    throw Error(Kind::kUsage, std::string("received ") + name + ", but the bundle was built by an earlier version, without inputs for it",
                "leave it out, or build the bundle again");
  };
  for (size_t number = 0; number < std::size(kSamplingOptions); ++number) {
    const SamplingOption& option = kSamplingOptions[number];
    if (option.is_input || option.kind == SamplingKind::kSeed) continue;
    for (size_t prompt = 0; prompt < prompts; ++prompt)
      if (const std::optional<Value> value = request.sampling[number].of(prompt); value && value->number != option.neutral) refuse(option.name);
  }
  for (size_t prompt = 0; prompt < prompts; ++prompt)
    if (is_any(biases_of(request, prompt))) refuse(kLogitBias);
}

// Throws for whatever a greedy bundle would have to leave undone.
void refuse(const Request& request, size_t prompts, int64_t sequences) {
  std::vector<std::string> received;
  for (size_t number = 0; number < std::size(kSamplingOptions); ++number) {
    const SamplingOption& option = kSamplingOptions[number];
    for (size_t i = 0; i < prompts; ++i) {
      const std::optional<Value> value = request.sampling[number].of(i);
      if (!value || (option.changes_greedy && value->number == option.neutral)) continue;
      received.push_back(std::string(option.name) + " " + value->repr());
      break;
    }
  }
  for (size_t i = 0; i < prompts; ++i) {
    if (!is_any(biases_of(request, i))) continue;
    received.push_back(std::string(kLogitBias) + " " + repr_of(biases_of(request, i)));
    break;
  }
  if (sequences > 1) received.push_back("num_return_sequences " + std::to_string(sequences));
  if (!received.empty())
    throw Error(Kind::kUsage, "received " + joined(received) + ", but the bundle was compiled for greedy decoding: sampling is not available",
                "leave these options out, or build the bundle with decoding: sampling");
}

int64_t check_sequences(const Request& request, const Manifest& manifest, bool side_by_side) {
  const Value asked = request.num_return_sequences.all.value_or(Value::of(uint64_t{1}));
  if (!asked.is_whole || asked.whole < 1)
    throw Error(Kind::kUsage, "num_return_sequences: received " + whole_repr(asked) + ", expected a whole number from 1 on", "give 1 or more");
  if (!side_by_side) return static_cast<int64_t>(std::min<uint64_t>(asked.whole, std::numeric_limits<int32_t>::max()));
  const uint64_t prompts = request.prompts.size(), most = static_cast<uint64_t>(manifest.batch_size);
  if (!prompts) throw Error(Kind::kPrompt, "received no prompts, expected at least one", "write [prompt]");
  if (asked.whole > most || prompts * asked.whole > most) {
    const std::string each = asked.whole > 1 ? " with " + asked.repr() + " sequences each" : "";
    throw Error(Kind::kPrompt, std::to_string(prompts) + " prompts" + each + " at once: expected 1 to " + std::to_string(most),
                "build the bundle with a larger cache.batch_size");
  }
  return static_cast<int64_t>(asked.whole);
}

bool check_flag(const char* name, const Setting& setting, bool otherwise) {
  if (!setting.all) return otherwise;
  if (!setting.all->is_whole || setting.all->whole > 1)
    throw Error(Kind::kUsage, std::string(name) + ": received " + whole_repr(*setting.all) + ", expected 0 or 1", "1 switches it on");
  return setting.all->whole == 1;
}

int64_t check_top_logprobs(const Request& request, const Manifest& manifest) {
  const Value asked = request.top_logprobs.all.value_or(Value::of(uint64_t{0}));
  if (!asked.is_whole || asked.whole > static_cast<uint64_t>(manifest.vocabulary_size))
    throw Error(Kind::kUsage,
                "top_logprobs: received " + whole_repr(asked) + ", expected a whole number from 0 to " + std::to_string(manifest.vocabulary_size),
                "0 keeps none");
  return static_cast<int64_t>(asked.whole);
}

// Return the tokens that end a sequence: those asked for, and the target's own unless they are ignored.
std::vector<int64_t> resolve_ends(const Request& request, const Manifest& manifest) {
  for (const int64_t token : request.stop_token_ids)
    if (token < 0 || token >= manifest.vocabulary_size)
      throw Error(Kind::kUsage,
                  "stop_token_ids: received " + std::to_string(token) + ", expected token ids from 0 to " + std::to_string(manifest.vocabulary_size - 1),
                  "give texts as stop");
  std::vector<int64_t> ends = request.stop_token_ids;
  if (!check_flag("ignore_eos", request.ignore_eos, false)) ends.insert(ends.end(), manifest.eos_token_ids.begin(), manifest.eos_token_ids.end());
  return ends;
}

SamplingParams row_sampling(const Request& request, size_t prompt, int64_t vocabulary) {
  SamplingParams made;
  std::optional<uint64_t> seed;
  for (size_t number = 0; number < std::size(kSamplingOptions); ++number) {
    const SamplingOption& option = kSamplingOptions[number];
    const std::optional<Value> value = request.sampling[number].of(prompt);
    if (!value) continue;
    if (option.number)
      made.*option.number = value->number;
    else if (option.count)
      made.*option.count = static_cast<int64_t>(std::min(value->whole, static_cast<uint64_t>(vocabulary)));
    else
      seed = value->whole;
  }
  for (const auto& [token, bias] : biases_of(request, prompt))
    if (bias != 0) made.logit_bias.emplace_back(token, bias);
  if (seed || made.temperature > 0) made.seed = seed ? *seed : fresh_seed();
  return made;
}

void check_prompt_number(const std::string& name, size_t prompt) {
  constexpr size_t kMost = 1 << 20;
  if (prompt >= kMost) throw Error(Kind::kUsage, name + ": received a value for prompt " + std::to_string(prompt), "the first prompt is 0; SPC_ALL is all");
}

// Store the value of one prompt in `each`, or that of all prompts in `all`.
template <class Given>
void keep(const char* name, size_t prompt, Given given, std::optional<Given>& all, std::map<size_t, Given>& each) {
  if (prompt == Request::kAll) {
    all = std::move(given);
  } else {
    check_prompt_number(name, prompt);
    each[prompt] = std::move(given);
  }
}

}  // namespace

std::string Value::repr() const {
  if (is_whole) return std::to_string(whole);
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return python_repr(number);
}

std::optional<Value> Setting::of(size_t prompt) const {
  return prompt < each.size() && each[prompt] ? each[prompt] : all;
}

void Request::set(size_t prompt, const std::string& name, Value value) {
  Setting* found = nullptr;
  std::vector<std::string> known;
  for (size_t number = 0; number < std::size(kSamplingOptions); ++number) {
    if (name == kSamplingOptions[number].name) found = &sampling[number];
    known.emplace_back(kSamplingOptions[number].name);
  }
  for (const Whole& each : kWholes) {
    if (name == each.name) {
      found = &(this->*each.setting);
      if (prompt != kAll)
        throw Error(Kind::kUsage, name + ": received a value for one prompt, expected one for all", "set it for all prompts");
    }
    known.emplace_back(each.name);
  }
  if (!found)
    throw Error(Kind::kUsage, "received the option " + python_repr(name) + ", expected one of " + joined(known),
                "options have the names of Python's generate_batch");
  if (prompt != kAll) check_prompt_number(name, prompt);
  Setting& setting = *found;
  if (prompt == kAll) {
    setting.all = value;
  } else {
    if (setting.each.size() <= prompt) setting.each.resize(prompt + 1);
    setting.each[prompt] = value;
  }
}

void Request::set_text(const std::string& name, const std::string& value) {
  if (name == "source_language")
    source_language = value;
  else if (name == "target_language")
    target_language = value;
  else if (name == "task")
    task = value;
  else
    throw Error(Kind::kUsage, "received the option " + python_repr(name) + ", expected one of source_language, target_language, task",
                "options have the names of Python's generate_batch");
}

void Request::set_logit_bias(size_t prompt, int64_t token, double bias) {
  if (prompt != kAll) check_prompt_number(kLogitBias, prompt);
  (prompt == kAll ? logit_bias : logit_biases[prompt])[token] = bias;
}

void Request::set_source(size_t prompt, Prompt given) { keep("source", prompt, std::move(given), source, sources); }

void Request::set_audio(size_t prompt, SoundPtr sound) { keep("audio", prompt, std::move(sound), audio, sounds); }

size_t Request::n_prompts() const {
  if (!prompts.empty()) return prompts.size();
  const size_t read = sources.empty() ? source.has_value() : sources.rbegin()->first + 1;
  const size_t heard = sounds.empty() ? audio.has_value() : sounds.rbegin()->first + 1;
  return std::max(read, heard);
}

Options check_options(const Request& request, const Manifest& manifest, bool side_by_side) {
  Options made;
  made.sequences = check_sequences(request, manifest, side_by_side);
  check_all(request, request.prompts.size());
  check_all_biases(request, request.prompts.size(), manifest.vocabulary_size);
  if (manifest.decoding == decoding::kGreedy)
    refuse(request, request.prompts.size(), made.sequences);
  else if (!has_input(manifest, names::kAdjusted))
    refuse_adjustments(request, request.prompts.size());
  for (size_t prompt = 0; prompt < request.prompts.size(); ++prompt) {
    SamplingParams sampling = row_sampling(request, prompt, manifest.vocabulary_size);
    for (int64_t number = 0; number < made.sequences; ++number) {
      sampling.sequence = static_cast<uint64_t>(number);
      made.samplings.push_back(sampling);
    }
  }
  if (const std::optional<Value>& asked = request.max_new_tokens.all) {
    if (!asked->is_whole || asked->whole < 1)
      throw Error(Kind::kUsage, "max_new_tokens is " + whole_repr(*asked) + ": expected at least 1", "give a whole number");
    made.max_new_tokens = static_cast<int64_t>(std::min<uint64_t>(asked->whole, std::numeric_limits<int64_t>::max()));
  }
  made.autoregressive = check_flag("autoregressive", request.autoregressive, false);
  made.adaptive = check_flag("adaptive", request.adaptive, true);
  made.logprobs = check_flag("logprobs", request.logprobs, false);
  made.top_logprobs = check_top_logprobs(request, manifest);
  made.ends = resolve_ends(request, manifest);
  made.chat = check_flag("chat", request.chat, false);
  made.truncate = check_flag("truncate", request.truncate, false);
  return made;
}

}  // namespace spc
