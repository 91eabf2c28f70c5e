// Prompts of requests as token ids, and back (serving/http/prompts.py, reading/tasks.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../../runtime/bundle.h"
#include "../../runtime/options.h"

namespace spc::http {

// Return a whole number of JSON that a schema has seen, which may be written as 3.0.
int64_t whole_of(const Json& value);

// Return token ids below a size. Throws RequestError with the first that is none.
TokenIds token_ids_of(const Json& list, int64_t size, const char* field);

// Return numbers by token id, of a JSON object. Throws RequestError with the first key that is no token id below a size.
LogitBias token_biases(const Json& given, int64_t size, const char* field);

// Throws RequestError, before a text is tokenized, if it is longer than any text of as many tokens as the model takes.
void check_bytes(const std::string& text, const Bundle& bundle, const char* field);
// Throw RequestError, in OpenAI's words, if a prompt leaves no capacity for a new token.
void check_length(size_t size, const Bundle& bundle, const char* field);
// Return the tokenizer. Throws RequestError without one.
const Text& tokenizer_of(const Bundle& bundle);
// Return the tokens of a conversation in the bundle's chat template. fits: refuse a text that is too long for the model before it
// is tokenized. tools: see `chat_text`. Throws RequestError.
TokenIds chat_prompt(const Json& fields, const Bundle& bundle, bool fits, const Json& tools = {});
// Return how many last tokens of each prompt are read, by truncate_prompt_tokens; none for all. new_tokens: at most. Throws
// RequestError for 0, which would leave no prompt.
std::optional<size_t> kept_tokens(const Json& fields, const Bundle& bundle, int64_t new_tokens);
TokenIds last_tokens(TokenIds ids, std::optional<size_t> kept);
// Return the tokens of every prompt of /v1/completions. kept: see `kept_tokens`. Throws RequestError.
std::vector<TokenIds> prompts_of(const Json& prompt, const Bundle& bundle, std::optional<size_t> kept);

// Return the answer of /tokenize, and of /detokenize. Throws RequestError.
Json read_tokens(const Json& body, const Bundle& bundle);
Json read_text(const Json& body, const Bundle& bundle);

}  // namespace spc::http
