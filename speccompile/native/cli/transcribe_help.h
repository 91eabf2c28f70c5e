// The text of `transcribe --help`, as Python's command has it.
#pragma once

namespace spc::cli {

constexpr const char* kTranscribeHelp = R"help(  Write down what is spoken in SOUND with BUNDLE, whose target is a Whisper.

  The sound is a WAV file of whole numbers or floats, of up to four hours.
  `speccompile transcribe` reads other forms as well. Several channels become
  their mean, and another rate than the target's 16000 samples a second is
  resampled (a sinc in a window of Hann). What is longer than the encoder
  hears at once, 30 s for Whisper, is heard in windows, each of which begins
  at the last time that the text before says: Whisper's sequential algorithm.
  Segments are printed as they come.

  The JSON object has the keys of `speccompile-native generate --json`, and
    text      without spaces around it; null without a tokenizer
    language  given or detected; null for a target of one language
    task      transcribe or translate
    duration  seconds of the sound
    segments  start, end, text, token_ids, seek, temperature, avg_logprob, compression_ratio, no_speech_prob

  Examples:
    speccompile-native transcribe build/whisper talk.wav
    speccompile-native transcribe build/whisper talk.wav --format srt > talk.srt
    speccompile-native transcribe build/whisper talk.wav --language de --task translate --json | jq -r .text
    speccompile-native transcribe build/whisper talk.wav --temperature 0,0.2,0.4,0.6,0.8,1
)help";

}  // namespace spc::cli
