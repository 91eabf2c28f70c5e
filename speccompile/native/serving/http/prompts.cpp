#include "prompts.h"

#include <algorithm>
#include <cstdint>

#include "../../errors.h"
#include "conversation.h"
#include "errors.h"
#include "fields.h"
#include "images.h"
#include "schema.h"

namespace spc::http {

constexpr const char* kTooLong = "shorten it, or let truncate_prompt_tokens: -1 drop its first tokens";

void check_bytes(const std::string& text, const Bundle& bundle, const char* field) {
  const int64_t capacity = bundle.manifest().max_length, most = tokenizer_of(bundle).longest_token_bytes() * capacity;
  if (most == 0 || static_cast<int64_t>(text.size()) <= most) return;
  throw RequestError(400, "This model's maximum context length is " + std::to_string(capacity) + " tokens, which are " + std::to_string(most) +
                              " bytes of text at most, and " + field + " has " + std::to_string(text.size()) + " bytes",
                     field, "context_length_exceeded", kTooLong);
}

// Return the digits of a whole number, also of 1e30.
std::string digits_of(const Json& value) {
  if (value.type() == Json::Type::kBig || value.is_integer()) return value.dump();
  const std::string digits = std::to_string(value.number());
  return digits.substr(0, digits.find('.'));
}

TokenIds token_ids_of(const Json& list, int64_t size, const char* field) {
  TokenIds found;
  for (const Json& id : list.list()) {
    found.push_back(whole_of(id));
    if (found.back() < 0 || found.back() >= size)
      throw RequestError(400,
                         std::string(field) + ": token id " + digits_of(id) +
                             " is out of range: expected 0 to " + std::to_string(size - 1),
                         field);
  }
  return found;
}

LogitBias token_biases(const Json& given, int64_t size, const char* field) {
  LogitBias found;
  for (const auto& [key, bias] : given.object()) {
    const bool is_id = !key.empty() && key.size() <= 10 && key.find_first_not_of("0123456789") == std::string::npos && (key == "0" || key[0] != '0');
    if (!is_id || std::stoll(key) >= size)
      throw RequestError(400, std::string(field) + ": received the key " + shown(Json(key)) + ", expected token ids from 0 to " + std::to_string(size - 1), field);
    found[std::stoll(key)] = bias.number();
  }
  return found;
}

namespace {

TokenIds encoded(const std::string& text, const Bundle& bundle, bool special_tokens, const char* field) {
  try {
    return tokenizer_of(bundle).encode(text, special_tokens);
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt) throw;
    throw RequestError(400, error.message, field);
  }
}

TokenIds tokens_of(const Json& ids, const Bundle& bundle, bool is_whole) {
  if (is_whole) check_length(ids.list().size(), bundle, "prompt");
  return token_ids_of(ids, bundle.manifest().vocabulary_size, "prompt");
}

TokenIds text_prompt(const std::string& text, const Bundle& bundle, bool is_whole) {
  if (is_whole) check_bytes(text, bundle, "prompt");
  return encoded(text, bundle, true, "prompt");
}

}  // namespace

int64_t whole_of(const Json& value) {
  if (value.type() == Json::Type::kBig) return value.text()[0] == '-' ? INT64_MIN : INT64_MAX;
  if (value.is_integer()) return value.integer();
  return static_cast<int64_t>(std::max(-9.2e18, std::min(value.number(), 9.2e18)));
}

// Throws RequestError, in OpenAI's words, if a prompt leaves no capacity for a new token.
void check_length(size_t size, const Bundle& bundle, const char* field) {
  const int64_t most = bundle.manifest().max_length;
  if (static_cast<int64_t>(size) < most) return;
  throw RequestError(400, "This model's maximum context length is " + std::to_string(most) + " tokens, and " + field + " has " + std::to_string(size) +
                              ": no token would fit behind them",
                     field, "context_length_exceeded", kTooLong);
}

const Text& tokenizer_of(const Bundle& bundle) {
  if (bundle.text()) return *bundle.text();
  try {
    return bundle.require_tokenizer("this model has no tokenizer", "send token ids to /v1/completions");
  } catch (const Error& error) {
    throw RequestError(400, error.message, "", "", error.hint);
  }
}

TokenIds chat_prompt(const Json& fields, const Bundle& bundle, bool fits, const Json& tools) {
  tokenizer_of(bundle);  // whose absence is told first
  const std::string written = chat_text(fields, bundle.chat(), tools);
  if (fits) check_bytes(written, bundle, "messages");
  return encoded(written, bundle, false, "messages");  // the template writes special tokens itself
}

std::optional<size_t> kept_tokens(const Json& fields, const Bundle& bundle, int64_t new_tokens) {
  if (!fields.find("truncate_prompt_tokens")) return std::nullopt;
  const int64_t asked = whole_of(fields["truncate_prompt_tokens"]);
  if (!asked)
    throw RequestError(400, "truncate_prompt_tokens: received 0, expected -1 or a number from 1 on", "truncate_prompt_tokens", "",
                       "leave it out to read the whole prompt");
  const int64_t room = bundle.manifest().max_length - std::min(new_tokens, bundle.manifest().max_length);
  return static_cast<size_t>(asked > 0 ? asked : std::max<int64_t>(1, room));
}

TokenIds last_tokens(TokenIds ids, std::optional<size_t> kept) {
  if (kept && *kept < ids.size()) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(*kept));
  return ids;
}

std::vector<TokenIds> prompts_of(const Json& prompt, const Bundle& bundle, std::optional<size_t> kept) {
  const bool is_several = prompt.is_list() && (prompt.list()[0].is_list() || prompt.list()[0].is_text());
  std::vector<TokenIds> found;
  for (const Json& each : is_several ? prompt.list() : Json::List{prompt})
    found.push_back(last_tokens(each.is_text() ? text_prompt(each.text(), bundle, !kept) : tokens_of(each, bundle, !kept), kept));
  for (const TokenIds& each : found) check_length(each.size(), bundle, "prompt");
  return found;
}

Json read_tokens(const Json& body, const Bundle& bundle) {
  std::optional<ShownMessages> seen = shown_messages(body, bundle);
  const Json fields = validate_tokenize(seen ? seen->rest : body);
  if (!fields.find("prompt") == !fields.find("messages"))
    throw RequestError(400, "received a prompt and messages, or neither, expected one of them", "prompt");
  const bool adds = !fields.find("add_special_tokens") || fields["add_special_tokens"].boolean();
  TokenIds ids;
  if (seen)
    ids = shown_prompt(body, fields, *seen, bundle, Json(), false);
  else
    ids = fields.find("messages") ? chat_prompt(fields, bundle, false) : encoded(fields["prompt"].text(), bundle, adds, "prompt");
  Json::List tokens, names;
  for (const int64_t id : ids) {
    tokens.push_back(id);
    names.push_back(tokenizer_of(bundle).id_to_token(id));
  }
  Json found = Json::Object{{"count", static_cast<int64_t>(ids.size())}, {"max_model_len", bundle.manifest().max_length}, {"tokens", tokens}};
  if (fields["return_token_strs"].boolean()) found.set("token_strs", names);
  return found;
}

Json read_text(const Json& body, const Bundle& bundle) {
  const Json fields = validate_detokenize(body);
  const Text& text = tokenizer_of(bundle);
  const TokenIds ids = token_ids_of(fields["tokens"], std::max(bundle.manifest().vocabulary_size, text.size()), "tokens");  // all that `read_tokens` gives
  return Json::Object{{"prompt", text.decode(ids)}};
}

}  // namespace spc::http
