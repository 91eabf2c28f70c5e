// Sounds of a call to features, and the tokens with which a transcript begins (runtime/audio/reader.py).
#pragma once

#include <optional>
#include <string>

#include "../text/text.h"
#include "wav.h"

namespace spc::audio {

// Return the features of a sound of any rate. Throws Error(kPrompt) for one that is empty, or longer than the encoder hears at once.
Features features_of(const Sound& sound, const AudioSection& about);

// Features of a sound of any length, at least as long as the encoder hears at once, and the sound's seconds.
struct HeardSound {
  Features features;
  double seconds = 0;
};
// Return the features of a sound of up to kMostSeconds. Throws Error(kPrompt) for one that is empty or longer.
HeardSound hear(const Sound& sound, const AudioSection& about);

// Return the tokens with which a transcript begins, in a language that is known; none for a target of one language. Throws Error(kUsage)
// for an unknown task. language: its token; timed: it has times.
TokenIds transcript_start(const SourceSection& about, std::optional<int64_t> language, const std::optional<std::string>& task, bool timed = false);

}  // namespace spc::audio
