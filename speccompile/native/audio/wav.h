// Samples of a WAV file: whole numbers of 8, 16, 24 or 32 bits and floats, of any number of channels (runtime/audio/wav.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../errors.h"
#include "mel.h"

namespace spc::audio {

// Samples in [-1, 1], the mean of all channels, and their number a second.
struct Sound {
  Samples samples;
  int64_t rate = 0;
};

// Return the sound of a file's bytes. where: its name in messages. Throws Error(kPrompt) for a file that is no WAV file, damaged, of
// another format or too long.
Sound parse_wav(std::string_view data, const std::string& where);
// The same for a file, of at most kMostSoundBytes.
Sound read_wav(const std::string& path);
// Return the error of a sound that is too long. The caller throws it.
Error too_long(const std::string& where, double seconds);
// Throws Error(kPrompt) for samples that are none, or no finite numbers.
void check_samples(const Samples& samples, const std::string& where);

}  // namespace spc::audio
