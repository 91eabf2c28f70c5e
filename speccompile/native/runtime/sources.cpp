#include "sources.h"

#include <algorithm>
#include <set>

#include "../bundle/blake3.h"
#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

constexpr size_t kShown = 6;  // languages that a message names
constexpr const char* kEncoderDecoder = "give a prompt, or a bundle whose target is an encoder-decoder";

void refuse_sources(const Request& request) {
  const std::pair<const char*, bool> given[] = {{"received a source", request.source || !request.sources.empty()},
                                                {"source_language: received one", request.source_language.has_value()},
                                                {"target_language: received one", request.target_language.has_value()}};
  for (const auto& [received, is_given] : given)
    if (is_given) throw Error(Kind::kUsage, std::string(received) + ", but this bundle's target has no encoder that takes it", kEncoderDecoder);
}

int64_t token_of_language(const SourceSection& about, const std::string& language, const std::string& name) {
  const auto found = about.languages.find(language);
  if (found != about.languages.end()) return found->second;
  const std::string received = name + ": received " + python_repr(language);
  if (about.languages.empty()) throw Error(Kind::kUsage, received + ", but this bundle's target knows no languages by name", "leave " + name + " out");
  std::vector<std::string> known;
  for (const auto& each : about.languages) known.push_back(each.first);
  const std::string close = close_match(language, known);
  const std::string count = std::to_string(known.size());
  const bool is_short = known.size() <= kShown;
  known.resize(std::min(known.size(), kShown));
  throw Error(Kind::kUsage, received + ", expected one of this bundle's " + count + " languages: " + joined(known) + (is_short ? "" : ", .."),
              close.empty() ? "`speccompile inspect` names them all" : "did you mean " + python_repr(close) + "?");
}

// The tokens with which an answer begins.
TokenIds start_tokens(const SourceSection& about, const std::optional<std::string>& language) {
  int64_t start = about.start_token_id;
  std::optional<int64_t> forced = about.forced_bos_token_id;
  if (language) {
    const int64_t token = token_of_language(about, *language, "target_language");
    if (about.language_is_start) {
      start = token;
    } else {
      forced = token;
    }
  }
  return forced ? TokenIds{start, *forced} : TokenIds{start};
}

TokenIds source_tokens(const Prompt& source, const Request& request, const Bundle& bundle) {
  const SourceSection& about = *bundle.manifest().source;
  const auto* const words = std::get_if<std::string>(&source);
  TokenIds ids = !words ? std::get<TokenIds>(source) : words->empty() ? TokenIds() : bundle.encode(*words);
  if (request.source_language) {
    const int64_t token = token_of_language(about, *request.source_language, "source_language");
    std::set<int64_t> known;
    for (const auto& each : about.languages) known.insert(each.second);
    if (words) std::replace_if(ids.begin(), ids.end(), [&](int64_t id) { return known.count(id) > 0; }, token);
    if (std::find(ids.begin(), ids.end(), token) == ids.end())
      throw Error(Kind::kPrompt, "source_language: received " + python_repr(*request.source_language) + ", but the tokenizer writes no language into this source",
                  words ? "leave source_language out" : "give a text: its tokenizer's own language is replaced");
  }
  if (ids.empty()) throw Error(Kind::kPrompt, "the source is empty: expected at least one token", "give a text or token ids");
  if (static_cast<int64_t>(ids.size()) > about.max_length)
    throw Error(Kind::kPrompt, "the source has " + std::to_string(ids.size()) + " tokens, more than this bundle's longest source of " + std::to_string(about.max_length),
                "shorten it, or build the bundle with a larger source.max_length");
  bundle.check_vocabulary(ids);
  return ids;
}

// The beginning of an answer.
Prompt answer_of(const Prompt& prompt, const TokenIds& start, const Bundle& bundle) {
  const auto* const words = std::get_if<std::string>(&prompt);
  if (!words) return prompt;
  TokenIds ids = start;
  if (words->empty()) return ids;
  const TokenIds more = bundle.encode(*words, false);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace

SourcePtr source_of(TokenIds tokens) {
  std::string key = hex(blake3({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int64_t)}));
  return std::make_shared<const Source>(Source{std::move(tokens), std::move(key)});
}

SourcedPrompts resolve_sources(const Request& request, const Bundle& bundle) {
  const std::optional<SourceSection>& about = bundle.manifest().source;
  if (!about) {
    refuse_sources(request);
    return {{}, request.prompts};
  }
  if (!request.source && request.sources.empty())
    throw Error(Kind::kPrompt, "this bundle's target has an encoder: received no source, expected the text that it reads",
                "give it with --source or --source-file; in C++ Request::source, in C spc_request_set_source");
  const size_t count = request.n_prompts();
  SourcedPrompts made;
  if (!request.sources.empty() && request.sources.rbegin()->first >= count)
    throw Error(Kind::kPrompt, "received " + std::to_string(request.sources.rbegin()->first + 1) + " sources for " + std::to_string(count) + " prompts, expected one for each, or one for all",
                "give each prompt its source, or all of them one");
  for (size_t prompt = 0; prompt < count; ++prompt) {
    const auto own = request.sources.find(prompt);
    if (own == request.sources.end() && !request.source)
      throw Error(Kind::kPrompt, "received no source for prompt " + std::to_string(prompt + 1) + " of " + std::to_string(count) + ", expected one for each, or one for all",
                  "give each prompt its source, or all of them one");
    made.sources.push_back(source_of(source_tokens(own == request.sources.end() ? *request.source : own->second, request, bundle)));
  }
  const TokenIds start = start_tokens(*about, request.target_language);
  for (size_t prompt = 0; prompt < count; ++prompt)
    made.prompts.push_back(request.prompts.empty() ? Prompt(start) : answer_of(request.prompts[prompt], start, bundle));
  return made;
}

}  // namespace spc
