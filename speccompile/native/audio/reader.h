// Features of audio, and the tokens with which a transcript begins (runtime/audio/reader.py).
#pragma once

#include <optional>
#include <string>

#include "../text/text.h"
#include "wav.h"

namespace spc::audio {

// Return the features of audio of any sample rate. Throws Error(kPrompt) if it is empty, or longer than the encoder's input.
Features features_of(const Sound& sound, const AudioSection& about);

// Features of audio of any length, filled up to the length of the encoder's input, and the audio's own seconds.
struct HeardSound {
  Features features;
  double seconds = 0;
};
// Return the features of audio of up to kMostSeconds. Throws Error(kPrompt) if it is empty or longer.
HeardSound hear(const Sound& sound, const AudioSection& about);

// Return the tokens with which a transcript begins, in a language that is known; none for a target of one language. Throws Error(kUsage)
// for an unknown task. language: its token; timed: it has times.
TokenIds transcript_start(const SourceSection& about, std::optional<int64_t> language, const std::optional<std::string>& task, bool timed = false);

}  // namespace spc::audio
