#include "sources.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "../audio/reader.h"
#include "../bundle/blake3.h"
#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

constexpr size_t kShown = 6;  // languages that a message names
constexpr size_t kLongest = 80;  // characters of an unknown one
constexpr const char* kEncoderDecoder = "give a prompt, or a bundle whose target is an encoder-decoder";

// Refuse options that a target does not take. reads: it takes sources; else it takes neither these nor sounds.
void refuse_sources(const Request& request, bool reads) {
  const std::pair<const char*, bool> given[] = {{"received a source", !reads && (request.source || !request.sources.empty())},
                                                {"source_language: received one", !reads && request.source_language},
                                                {"target_language: received one", !reads && request.target_language},
                                                {"audio: received a sound", request.audio || !request.sounds.empty()},
                                                {"task: received one", request.task.has_value()}};
  for (const auto& [received, is_given] : given)
    if (is_given) throw Error(Kind::kUsage, std::string(received) + ", but this bundle's target has no encoder that takes it", kEncoderDecoder);
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

// Return the value of each prompt: its own, or the one for all.
template <class Given>
std::vector<const Given*> paired(const std::optional<Given>& all, const std::map<size_t, Given>& each, size_t count) {
  constexpr const char* kOneForEach = "give each prompt its source, or all of them one";
  if (!each.empty() && each.rbegin()->first >= count)
    throw Error(Kind::kPrompt, "received " + std::to_string(each.rbegin()->first + 1) + " sources for " + std::to_string(count) + " prompts, expected one for each, or one for all",
                kOneForEach);
  std::vector<const Given*> found;
  for (size_t prompt = 0; prompt < count; ++prompt) {
    const auto own = each.find(prompt);
    if (own == each.end() && !all)
      throw Error(Kind::kPrompt, "received no source for prompt " + std::to_string(prompt + 1) + " of " + std::to_string(count) + ", expected one for each, or one for all",
                  kOneForEach);
    found.push_back(own == each.end() ? &*all : &own->second);
  }
  return found;
}

// The tokens with which a transcript begins.
TokenIds heard_start(const SourceSection& about, const Request& request) {
  if (request.source_language) return audio::transcript_start(about, token_of_language(about, *request.source_language, "source_language"), request.task);
  if (!about.languages.empty())
    throw Error(Kind::kUsage, "source_language: received none, expected the language that is spoken", "speccompile-native transcribe detects it");
  return audio::transcript_start(about, std::nullopt, request.task);
}

SourcedPrompts resolve_sounds(const Request& request, const Bundle& bundle) {
  const Manifest& manifest = bundle.manifest();
  if (request.source || !request.sources.empty())
    throw Error(Kind::kUsage, "source: received one, but this bundle's target hears", "give audio in its place");
  if (request.target_language)
    throw Error(Kind::kUsage, "target_language: received one, but this bundle's target writes what is spoken, or English",
                "give source_language, what is spoken; task='translate' writes English");
  if (!request.audio && request.sounds.empty() && !request.features)
    throw Error(Kind::kPrompt, "this bundle's target hears: received no sound, expected one",
                "give it with --audio SOUND.wav; in C++ Request::audio_file, in C spc_request_set_audio_file");
  SourcedPrompts made;
  if (request.features) {
    made.sources.assign(request.n_prompts(), source_of(*request.features));
  } else {
    for (const SoundPtr* const sound : paired(request.audio, request.sounds, request.n_prompts()))
      made.sources.push_back(source_of(audio::features_of(**sound, *manifest.source->audio)));
  }
  for (size_t prompt = 0; prompt < made.sources.size(); ++prompt) {
    const Prompt given = request.prompts.empty() ? Prompt(std::string()) : request.prompts[prompt];
    const bool is_text = std::holds_alternative<std::string>(given);
    made.prompts.push_back(is_text ? answer_of(given, heard_start(*manifest.source, request), bundle) : given);
  }
  return made;
}

}  // namespace

int64_t token_of_language(const SourceSection& about, const std::string& language, const std::string& name) {
  const auto found = about.languages.find(language);
  if (found != about.languages.end()) return found->second;
  const std::string received = name + ": received " + python_repr(first_characters(language, kLongest));
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

SourcePtr source_of(TokenIds tokens) {
  std::string key = hex(blake3({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int64_t)}));
  return std::make_shared<const Source>(Source{std::move(tokens), std::move(key)});
}

SourcePtr source_of(audio::Features features) {
  std::string key = hex(blake3({reinterpret_cast<const char*>(features.values.data()), features.values.size() * sizeof(float)}));
  return std::make_shared<const Source>(Source{{}, std::move(key), std::move(features)});
}

SourcedPrompts resolve_sources(const Request& request, const Bundle& bundle) {
  const std::optional<SourceSection>& about = bundle.manifest().source;
  if (!about) {
    refuse_sources(request, false);
    return {{}, request.prompts};
  }
  if (about->audio) return resolve_sounds(request, bundle);
  refuse_sources(request, true);
  if (!request.source && request.sources.empty())
    throw Error(Kind::kPrompt, "this bundle's target has an encoder: received no source, expected the text that it reads",
                "give it with --source or --source-file; in C++ Request::source, in C spc_request_set_source");
  SourcedPrompts made;
  for (const Prompt* const source : paired(request.source, request.sources, request.n_prompts())) made.sources.push_back(source_of(source_tokens(*source, request, bundle)));
  const TokenIds start = start_tokens(*about, request.target_language);
  for (size_t prompt = 0; prompt < made.sources.size(); ++prompt)
    made.prompts.push_back(request.prompts.empty() ? Prompt(start) : answer_of(request.prompts[prompt], start, bundle));
  return made;
}

}  // namespace spc
