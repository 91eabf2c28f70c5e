// Sounds of a call to features, and the tokens with which a transcript begins (runtime/audio/reader.py).
#pragma once

#include <optional>
#include <string>

#include "../text/text.h"
#include "wav.h"

namespace spc::audio {

// Return the features of a sound of any rate. Throws Error(kPrompt) for one that is empty, or longer than the encoder hears at once.
Features features_of(const Sound& sound, const AudioSection& about);
// Return the tokens with which a transcript begins, without times, in a language that is known; none for a target of one language.
// Throws Error(kUsage) for an unknown task. language: its token.
TokenIds transcript_start(const SourceSection& about, std::optional<int64_t> language, const std::optional<std::string>& task);

}  // namespace spc::audio
