// Sources of a call: texts or token ids, in a language, and the tokens with which their answers begin (runtime/sources.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../audio/mel.h"
#include "bundle.h"

namespace spc {

// Input of an encoder: the tokens of a text, or features of a sound. key: the same for equal sources alone.
struct Source {
  TokenIds tokens;
  std::string key;
  audio::Features features = {};

  bool is_sound() const { return features.frames > 0; }
};
using SourcePtr = std::shared_ptr<const Source>;

// The source of each prompt, none for a target without an encoder, and the prompts: the beginnings of the answers.
struct SourcedPrompts {
  std::vector<SourcePtr> sources;
  std::vector<Prompt> prompts;
};

// Return the sources or sounds of a request, and its prompts: an empty text is what every answer begins with; a text follows it; token ids
// replace it; no prompts are an empty text for each source. Throws Error(kUsage) for sources, or languages, that the bundle has no
// use for, Error(kPrompt) for a source that is missing, empty, too long or not of the vocabulary, and for prompts of another number.
SourcedPrompts resolve_sources(const Request& request, const Bundle& bundle);

// Return the source of these tokens; and of these features.
SourcePtr source_of(TokenIds tokens);
SourcePtr source_of(audio::Features features);
// Return the token of a language. Throws Error(kUsage), which names `name`, for one that the target does not know.
int64_t token_of_language(const SourceSection& about, const std::string& language, const std::string& name);

}  // namespace spc
