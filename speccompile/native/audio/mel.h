// Log-mel features of samples, as Whisper's (runtime/audio/mel.py): equal to numpy's within float rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "../bundle/source_section.h"

namespace spc::audio {

using Samples = std::vector<float>;

// float32 [mels, frames], band by band.
struct Features {
  int64_t mels = 0, frames = 0;
  std::vector<float> values;
};

// Return [mels, frames] for samples in [-1, 1], padded with silence, or cut, to frames * hop.
Features log_mel(Samples samples, const AudioSection& about);
// Return [mels, F] for samples of any length, at least frames * hop, of which F frames are whole.
Features long_log_mel(const Samples& samples, const AudioSection& about);
// Return [window / 2 + 1, mels]: the share of each frequency in each band, triangles of equal area on Slaney's scale from 0 to 8000 Hz.
std::vector<float> mel_filters(const AudioSection& about);

}  // namespace spc::audio
