#include "requests.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "../../errors.h"
#include "../../runtime/sampling_inputs.h"
#include "errors.h"
#include "fields.h"
#include "images.h"
#include "prompts.h"
#include "schema.h"
#include "tables.h"

namespace spc::http {
namespace {

int64_t whole_or(const Json& fields, const char* name, int64_t otherwise) {
  const Json* const value = fields.find(name);
  return value ? whole_of(*value) : otherwise;
}

// Equal seeds below zero and above: modulo 2**64.
uint64_t seed_of(const Json& value) {
  if (value.type() == Json::Type::kBig) return std::strtoull(value.text().c_str(), nullptr, 10);
  if (value.is_integer()) return static_cast<uint64_t>(value.integer());
  return value.number() < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value.number())) : static_cast<uint64_t>(value.number());
}

[[noreturn]] void refuse_without_stream(const char* name) {
  throw RequestError(400, std::string(name) + ": received it without stream", name, "", "set stream to true");
}

void read_common(const Json& fields, ParsedRequest& made) {
  made.stream = fields["stream"].boolean();
  const Json& wanted = fields["stream_options"];
  if (fields.find("stream_options") && !made.stream) refuse_without_stream("stream_options");
  made.drafts = fields["return_drafts"].boolean();
  if (made.drafts && !made.stream) refuse_without_stream("return_drafts");
  made.sequences = whole_or(fields, "n", 1);
  made.usage = wanted["include_usage"].boolean();
  made.continuous_usage = made.usage && wanted["continuous_usage_stats"].boolean();
  made.token_ids = fields["return_token_ids"].boolean();
  made.salt = fields["cache_salt"].text();
  made.priority = whole_or(fields, "priority", 0);
  made.model = fields["model"].text();
}

// Throws RequestError for `min_tokens` if an answer may end before.
void check_least(const Json& fields, const Request& options, int64_t most) {
  const int64_t least = whole_or(fields, "min_tokens", 0);
  const bool has_end = !fields["ignore_eos"].boolean() || !options.stop.empty() || !options.stop_token_ids.empty();
  if (least && (has_end || least > most))
    throw RequestError(400, "min_tokens: received " + fields["min_tokens"].dump() + ", which is only supported where nothing ends an answer before max_tokens",
                       "min_tokens", "unsupported_parameter", "set ignore_eos, and no stop");
}

// Return the value of a field in the range of the option, of which OpenAI's and vLLM's fields take more.
Value sampling_value(const SamplingOption& option, const Json& given) {
  if (option.kind == SamplingKind::kSeed) return Value::of(seed_of(given));
  if (option.kind == SamplingKind::kCount) return Value::of(static_cast<uint64_t>(std::max<int64_t>(0, whole_of(given))));
  if (std::string(option.name) == "temperature") return Value::of(given.number() >= kMinTemperature ? given.number() : 0.0);
  return Value::of(std::max(given.number(), option.least));
}

// Throws RequestError for sampling that a greedy bundle cannot do. Limits of sampling such as top_p leave its choice unchanged.
void check_greedy(const Json& fields, bool is_biased) {
  const auto refuse = [&](const char* name) {
    throw RequestError(400, std::string(name) + ": received " + shown(fields[name]) + ", but this model was compiled for greedy decoding", name,
                       "unsupported_value", "leave it out; a bundle with decoding: sampling takes it");
  };
  for (const SamplingOption& option : kSamplingOptions)
    if (const Json* const given = option.changes_greedy ? fields.find(option.name) : nullptr)
      if (sampling_value(option, *given).number != option.neutral) refuse(option.name);
  if (is_biased) refuse(kLogitBias);
  if (whole_or(fields, "n", 1) > 1) refuse("n");
}

// Throws RequestError for what a bundle without inputs for biases and penalties would have to ignore.
void check_adjustments(const Json& fields, bool is_biased) {
  const auto refuse = [&](const char* name) {
    throw RequestError(400, std::string(name) + ": received " + shown(fields[name]) + ", but this model was built by an earlier version, without inputs for it", name,
                       "unsupported_value", "leave it out; a bundle that is built again takes it");
  };
  for (const SamplingOption& option : kSamplingOptions)
    if (!option.is_input && option.kind != SamplingKind::kSeed)
      if (const Json* const given = fields.find(option.name); given && given->number() != option.neutral) refuse(option.name);
  if (is_biased) refuse(kLogitBias);
}

void set_sampling(const Json& fields, Request& options) {
  options.set(Request::kAll, "temperature", Value::of(1.0));
  for (const SamplingOption& option : kSamplingOptions)
    if (const Json* const given = fields.find(option.name)) options.set(Request::kAll, option.name, sampling_value(option, *given));
  options.set(Request::kAll, "num_return_sequences", Value::of(static_cast<uint64_t>(whole_or(fields, "n", 1))));
}

void set_options(const Json& fields, const Bundle& bundle, int64_t most, const ReadSettings& settings, ParsedRequest& made) {
  Request& options = made.options;
  const Json& stop = fields["stop"];
  const auto flag = [&](const char* name, bool value) { options.set(Request::kAll, name, Value::of(static_cast<uint64_t>(value))); };
  if (stop.is_text()) options.stop = {stop.text()};
  for (const Json& each : stop.list()) options.stop.push_back(each.text());
  if (!options.stop.empty() && !bundle.text())
    throw RequestError(400, "stop: this model has no tokenizer, so no text to stop at", "stop", "", "use stop_token_ids");
  options.stop_token_ids = token_ids_of(fields["stop_token_ids"], bundle.manifest().vocabulary_size, "stop_token_ids");
  options.set(Request::kAll, "max_new_tokens", Value::of(static_cast<uint64_t>(most)));
  flag("ignore_eos", fields["ignore_eos"].boolean());
  flag("autoregressive", fields.find("speculative") ? !fields["speculative"].boolean() : !settings.speculative);
  flag("logprobs", made.logprobs.has_value());
  if (made.logprobs.value_or(0)) options.set(Request::kAll, "top_logprobs", Value::of(static_cast<uint64_t>(*made.logprobs)));
  check_least(fields, options, most);
  options.logit_bias = token_biases(fields[kLogitBias], bundle.manifest().vocabulary_size, kLogitBias);
  const bool is_biased = std::any_of(options.logit_bias.begin(), options.logit_bias.end(), [](const auto& each) { return each.second != 0; });
  if (bundle.manifest().decoding == decoding::kGreedy) {
    check_greedy(fields, is_biased);
  } else {
    if (!has_input(bundle.manifest(), names::kAdjusted)) check_adjustments(fields, is_biased);
    set_sampling(fields, options);
  }
  options.constraint = constraint_of(fields, bundle, settings.grammar_bytes);
}

// Set the constraint that forces a tool call, if there must be one. Throws RequestError if another form is requested too.
void force_call(const Bundle& bundle, int64_t most, ParsedRequest& made) {
  if (made.options.constraint)
    throw RequestError(400, "tools: received them beside another form of the answer, expected one of them", "tools", "unsupported_parameter",
                       "set tool_choice to none, or leave the form out");
  made.options.constraint = made.tools->constraint(bundle, most);
}

// Return the name of a value that Python's json would read, and JSON does not have; "" where all are numbers.
std::string odd_number(const Json& value) {
  if (value.type() == Json::Type::kNumber && !std::isfinite(value.number())) return value.dump();
  std::string found;
  for (const Json& each : value.list())
    if (found.empty()) found = odd_number(each);
  for (const auto& each : value.object())
    if (found.empty()) found = odd_number(each.second);
  return found;
}

void check_unicode(const Json& value, const std::string& where) {
  const auto refuse = [&](const std::string& text) {
    if (is_utf8(text)) return;
    const std::string named = is_utf8(where) ? where : "";
    throw RequestError(400, (named.empty() ? "the body" : named) + ": received a text with half a surrogate pair, expected Unicode text", named, "",
                       "send both halves, or the character itself");
  };
  if (value.is_text()) refuse(value.text());
  for (size_t index = 0; index < value.list().size(); ++index) check_unicode(value.list()[index], where + "[" + std::to_string(index) + "]");
  for (const auto& [name, each] : value.object()) {
    refuse(name);
    check_unicode(each, where.empty() ? name : where + "." + name);
  }
}

}  // namespace

ParsedRequest read_completion(const Json& body, const Bundle& bundle, const ReadSettings& settings) {
  const Json fields = validate_completion(body);
  if (bundle.manifest().source)  // that hears: others are not served
    throw RequestError(400, "prompt: received a text, but this model hears", "prompt", "", std::string("use ") + kTranscriptionsUrl);
  ParsedRequest made;
  const int64_t most = whole_or(fields, "max_tokens", kCompletionTokens);
  made.prompts = prompts_of(fields["prompt"], bundle, kept_tokens(fields, bundle, most));
  if (fields.find("logprobs")) made.logprobs = whole_of(fields["logprobs"]);
  const bool echoes = fields["echo"].boolean();
  if (echoes && made.logprobs)
    throw RequestError(400, "echo: received true with logprobs: log-probabilities of a prompt are not supported", "echo", "unsupported_parameter",
                       "leave one of them out");
  const int64_t sequences = whole_or(fields, "n", 1);
  if (whole_or(fields, "best_of", sequences) != sequences)
    throw RequestError(400, "best_of: received " + fields["best_of"].dump() + ", expected n, which is " + std::to_string(sequences), "best_of",
                       "unsupported_parameter", "leave it out");
  read_common(fields, made);
  set_options(fields, bundle, most, settings, made);
  if (echoes)
    for (const TokenIds& prompt : made.prompts) made.echo.push_back(tokenizer_of(bundle).decode(prompt));
  return made;
}

ParsedRequest read_chat(const Json& body, const Bundle& bundle, const ReadSettings& settings) {
  std::optional<ShownMessages> seen = shown_messages(body, bundle);
  const Json fields = validate_chat(seen ? seen->rest : body);
  ParsedRequest made;
  made.is_chat = true;
  const bool wants_logprobs = fields["logprobs"].boolean();
  if (const Json* const top = fields.find("top_logprobs"); top && !wants_logprobs)
    throw RequestError(400, "top_logprobs: received " + top->dump() + " without logprobs", "top_logprobs", "", "set logprobs");
  if (wants_logprobs) made.logprobs = whole_or(fields, "top_logprobs", 0);
  const int64_t least = whole_or(fields, "max_completion_tokens", whole_or(fields, "max_tokens", 1));
  const std::optional<size_t> kept = kept_tokens(fields, bundle, least);
  made.tools = Tools::of(fields, bundle);
  const Json tools = made.tools ? Json(made.tools->declared) : Json();
  made.prompts = {seen ? shown_prompt(body, fields, *seen, bundle, tools) : last_tokens(chat_prompt(fields, bundle, !kept, tools), kept)};
  if (seen) made.options.images[0] = seen->pictures;
  check_length(made.prompts[0].size(), bundle, "messages");
  const int64_t room = bundle.manifest().max_length - static_cast<int64_t>(made.prompts[0].size());
  read_common(fields, made);
  set_options(fields, bundle, whole_or(fields, "max_completion_tokens", whole_or(fields, "max_tokens", room)), settings, made);
  if (made.tools) force_call(bundle, settings.grammar_bytes, made);
  return made;
}

Json parse_body(const std::string& data) {
  Json value;
  try {
    value = Json::parse(data);
  } catch (const JsonError& error) {
    throw RequestError(400, (std::string_view(error.what()) == "nested too deeply" ? "the body is " : "the body is no JSON: ") + std::string(error.what()), "", "invalid_json");
  }
  const std::string odd = odd_number(value);
  if (!odd.empty()) throw RequestError(400, "the body is no JSON: " + odd + " is no number of JSON", "", "invalid_json");
  check_unicode(value, "");
  return value;
}

}  // namespace spc::http
