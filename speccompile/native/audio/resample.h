// Samples at another rate: a windowed sinc, as torchaudio's `sinc_interp_hann` with its defaults (runtime/audio/resample.py).
#pragma once

#include "mel.h"

namespace spc::audio {

// Return ceil(n * wanted / rate) samples, `wanted` a second, of n samples at `rate`.
Samples resample(Samples samples, int64_t rate, int64_t wanted);

}  // namespace spc::audio
