// Parse request bodies (serving/http/requests.py, prompts.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../../runtime/bundle.h"
#include "token_texts.h"
#include "tools.h"

namespace spc::http {

// prompts: token ids of each; options: of `Service::submit`, the same for all, without a prompt; sequences: number for each
// prompt. stream: send output as it comes; usage: at the end of the stream, or with every chunk (`continuous_usage`). logprobs:
// number of alternative tokens at each position, nullopt for no log-probabilities. echo: texts before the answers, one for each
// prompt. token_ids: whether to send them; drafts: whether to send what each round drafted. salt: only requests with the same salt share cached prompts. model: as the request
// names it, "" if it does not.
struct ParsedRequest {
  bool is_chat = false;
  std::vector<TokenIds> prompts;
  Request options;
  int64_t sequences = 1;
  bool stream = false, usage = false, continuous_usage = false, token_ids = false, drafts = false;
  std::optional<int64_t> logprobs;
  std::vector<std::string> echo;
  std::string salt, model;
  int64_t priority = 0;  // lower numbers are served earlier
  std::optional<Tools> tools;  // that an answer may call

  size_t choices() const { return prompts.size() * static_cast<size_t>(sequences); }
  const TokenIds& prompt_of(size_t choice) const { return prompts[choice / static_cast<size_t>(sequences)]; }
  std::string echo_of(size_t choice) const { return echo.empty() ? "" : echo[choice / static_cast<size_t>(sequences)]; }
};

// speculative: of requests that do not say it. grammar_bytes: limit of a constraint's size.
struct ReadSettings {
  bool speculative = true;
  int64_t grammar_bytes = constraints::SizeLimit().bytes;
};

// Parse a body of /v1/completions or /v1/chat/completions. Throws RequestError for what this bundle cannot take.
ParsedRequest read_completion(const Json& body, const Bundle& bundle, const ReadSettings& settings);
ParsedRequest read_chat(const Json& body, const Bundle& bundle, const ReadSettings& settings);

// Return the JSON value of a body. Throws RequestError for invalid JSON, and for text that is not Unicode.
Json parse_body(const std::string& data);

}  // namespace spc::http
