// Sources of a call: texts or token ids, in a language, and the tokens with which their answers begin (runtime/sources.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../audio/mel.h"
#include "../audio/rules.h"
#include "bundle.h"

namespace spc {

// What an encoder reads: the tokens of a text, or features of a sound. key: the same for equal sources alone; rules: of the tokens that
// follow a sound, null for texts.
struct Source {
  TokenIds tokens;
  std::string key;
  audio::Features features = {};
  std::shared_ptr<const audio::TokenRules> rules = nullptr;
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

// Return a source of these tokens; and of these features, in a bundle whose target hears.
SourcePtr source_of(TokenIds tokens);
SourcePtr source_of(audio::Features features, const Manifest& manifest);

}  // namespace spc
