#include "reader.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "../errors.h"
#include "../words.h"
#include "resample.h"

namespace spc::audio {
namespace {

constexpr const char* kTranscribe = "transcribe";  // task by default

std::string shown(const char* form, double value) {
  char text[32];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

int64_t token_of_task(const AudioSection& audio, const std::optional<std::string>& task) {
  const auto found = audio.tasks.find(task.value_or(kTranscribe));
  if (found != audio.tasks.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& each : audio.tasks) names.push_back(each.first);
  throw Error(Kind::kUsage, "task: received " + (task ? python_repr(*task) : std::string("None")) + ", expected one of " + joined(names), "leave it out to transcribe");
}

// The samples of a sound at the target's rate. Throws Error(kPrompt) for floats so large that the power of a frame would be infinite.
Samples resampled(const Sound& sound, const AudioSection& about) {
  Samples samples = resample(sound.samples, sound.rate ? sound.rate : about.sampling_rate, about.sampling_rate);
  float loudest = 0;
  for (const float each : samples) loudest = loudest < std::fabs(each) || std::isnan(each) ? std::fabs(each) : loudest;
  const float power = loudest * static_cast<float>(about.window);
  if (!std::isfinite(power * power))
    throw Error(Kind::kPrompt, "audio: received samples of up to " + shown("%g", static_cast<double>(loudest)) + ", expected them in [-1, 1]", "check where they come from");
  return samples;
}

}  // namespace

Features features_of(const Sound& sound, const AudioSection& about) {
  check_samples(sound.samples, "audio");
  const int64_t rate = sound.rate ? sound.rate : about.sampling_rate, longest = about.frames * about.hop;
  const double had = static_cast<double>(sound.samples.size()) / static_cast<double>(rate);
  const double most = static_cast<double>(longest) / static_cast<double>(about.sampling_rate);
  if (static_cast<int64_t>(sound.samples.size()) * about.sampling_rate > longest * rate)
    throw Error(Kind::kPrompt, "audio: received " + shown("%.1f", had) + " s, expected at most " + shown("%g", most) + " s, which the encoder hears at once",
                "speccompile-native transcribe takes long sounds");
  return log_mel(resampled(sound, about), about);
}

HeardSound hear(const Sound& sound, const AudioSection& about) {
  check_samples(sound.samples, "audio");
  const Samples samples = resampled(sound, about);
  const double length = static_cast<double>(samples.size()) / static_cast<double>(about.sampling_rate);
  if (length > kMostSeconds) throw too_long("audio", length);
  const bool is_long = static_cast<int64_t>(samples.size()) > about.frames * about.hop;
  return {is_long ? long_log_mel(samples, about) : log_mel(samples, about), length};
}

TokenIds transcript_start(const SourceSection& about, std::optional<int64_t> language, const std::optional<std::string>& task, bool timed) {
  const AudioSection& audio = *about.audio;
  TokenIds tokens = {about.start_token_id};
  if (language) {
    tokens.push_back(*language);
    if (!audio.tasks.empty()) tokens.push_back(token_of_task(audio, task));
  } else {
    if (task && *task != kTranscribe)
      throw Error(Kind::kUsage, "task: received " + python_repr(*task) + ", but this bundle's target only transcribes", "leave it out");
    tokens.insert(tokens.end(), audio.prompt.begin(), audio.prompt.end());
  }
  const bool says_so = audio.no_timestamps && tokens.back() == *audio.no_timestamps;
  if (timed && says_so) tokens.pop_back();
  if (!timed && audio.no_timestamps && !says_so) tokens.push_back(*audio.no_timestamps);
  return tokens;
}

}  // namespace spc::audio
