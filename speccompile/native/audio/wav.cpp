#include "wav.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "../errors.h"
#include "../files.h"

namespace spc::audio {
namespace {

constexpr const char* kConvert = "convert it first: ffmpeg -i SOUND -ar 16000 -ac 1 SOUND.wav";
constexpr int64_t kPcm = 1, kFloat = 3, kExtensible = 0xFFFE;
constexpr size_t kRiff = 12, kHead = 8, kForm = 16;  // bytes before the first chunk, of a chunk's name and size, and of the format
constexpr size_t kSubformat = 24;                    // place of the format's number in the extensible form

[[noreturn]] void refuse(const std::string& where, const std::string& problem, const char* hint = kConvert) { throw Error(Kind::kPrompt, where + ": " + problem, hint); }

[[noreturn]] void damaged(const std::string& where, const std::string& problem) { refuse(where, "the WAV file is damaged: " + problem); }

// A number of `size` bytes at a place, which the data has.
uint64_t number_at(std::string_view data, size_t place, size_t size) {
  uint64_t found = 0;
  for (size_t i = size; i-- > 0;) found = found << 8 | static_cast<uint8_t>(data[place + i]);
  return found;
}

bool is_wav(std::string_view data) { return data.substr(0, 4) == "RIFF" && data.size() >= kRiff && data.substr(8, 4) == "WAVE"; }

struct Format {
  int64_t kind, channels, rate, block, bits;
};

Format format_of(std::string_view form) {
  const auto at = [&](size_t place, size_t size) { return static_cast<int64_t>(number_at(form, place, size)); };
  Format found{at(0, 2), at(2, 2), at(4, 4), at(12, 2), at(14, 2)};
  if (found.kind == kExtensible && form.size() >= kSubformat + 2) found.kind = at(kSubformat, 2);
  return found;
}

// A sample of so many bytes; NaN for a double that no float holds.
float sample_at(std::string_view data, size_t place, size_t bytes, bool is_float) {
  const uint64_t raw = number_at(data, place, bytes);
  if (is_float && bytes == sizeof(float)) {
    const auto bits = static_cast<uint32_t>(raw);
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  if (is_float) {
    double value = 0;
    std::memcpy(&value, &raw, sizeof value);
    return std::fabs(value) <= static_cast<double>(std::numeric_limits<float>::max()) ? static_cast<float>(value) : std::numeric_limits<float>::quiet_NaN();
  }
  if (bytes == 1) return (static_cast<float>(raw) - 128.0f) / 128.0f;
  const uint64_t sign = uint64_t{1} << (8 * bytes - 1);
  const int64_t value = static_cast<int64_t>(raw ^ sign) - static_cast<int64_t>(sign);
  return static_cast<float>(value) / static_cast<float>(sign);
}

// Throws Error(kPrompt) for a WAV file of `size` bytes that is too long by what its first bytes say.
void check_length(std::string_view start, size_t size, const std::string& where) {
  std::string_view form;
  for (size_t place = kRiff; place + kHead <= start.size();) {
    const std::string_view name = start.substr(place, 4);
    const auto length = static_cast<size_t>(number_at(start, place + 4, 4));
    place += kHead;
    if (name == "data" && form.size() >= kForm) {
      const Format format = format_of(form);
      const auto samples = static_cast<int64_t>(std::min(length, size - place)) / std::max<int64_t>(1, format.block);
      if (format.rate && samples > kMostSeconds * format.rate) throw too_long(where, static_cast<double>(samples) / static_cast<double>(format.rate));
    }
    if (name == "fmt ") form = start.substr(std::min(place, start.size()), length);
    place += length + length % 2;
  }
}

// The same for a file, before it is read whole. What is no file, or no WAV file, is refused by others.
void check_length(const std::string& path) {
  constexpr size_t kStart = 1 << 16;
  const FileDescriptor file(path, O_RDONLY | O_NONBLOCK);
  std::string start(kStart, '\0');
  start.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(file.number(), &start[0], kStart, 0))));
  const off_t size = lseek(file.number(), 0, SEEK_END);
  if (is_wav(start) && size >= static_cast<off_t>(start.size()) && size <= kMostSoundBytes) check_length(start, static_cast<size_t>(size), path);
}

Sound decode(const Format& format, std::string_view data, const std::string& where) {
  const auto& [kind, channels, rate, block, bits] = format;
  const bool is_float = kind == kFloat && (bits == 32 || bits == 64), is_whole = kind == kPcm && (bits == 8 || bits == 16 || bits == 24 || bits == 32);
  const std::string other_form = "received samples of format " + std::to_string(kind) + " with " + std::to_string(bits) + " bits, expected PCM of 8 to 32 bits or floats";
  if (kind != kPcm && kind != kFloat) refuse(where, other_form);  // compressed ones have fewer bits than bytes hold, and are not damaged
  const int64_t expected = channels * (bits / 8);
  const std::string each = std::to_string(channels) + " channels of " + std::to_string(bits) + " bits, expected ";
  if (!(kLeastRate <= rate && rate <= kMostRate))
    damaged(where, std::to_string(rate) + " samples a second, expected " + std::to_string(kLeastRate) + " to " + std::to_string(kMostRate));
  if (!(channels && bits >= 8)) damaged(where, each + "1 or more, of 8 bits or more");
  if (block != expected) damaged(where, std::to_string(block) + " bytes for " + each + std::to_string(expected));
  const size_t frame = static_cast<size_t>(block), count = data.size() / frame;
  if (count > static_cast<size_t>(kMostSeconds) * static_cast<size_t>(rate))
    throw too_long(where, static_cast<double>(count) / static_cast<double>(rate));
  if (!is_float && !is_whole) refuse(where, other_form);
  if (!count) refuse(where, "the WAV file has no samples", "give a sound");
  Sound sound{Samples(count), rate};
  const size_t bytes = static_cast<size_t>(bits / 8);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (size_t channel = 0; channel < static_cast<size_t>(channels); ++channel) sum += sample_at(data, i * frame + channel * bytes, bytes, is_float);
    sound.samples[i] = sum / static_cast<float>(channels);
  }
  if (!std::all_of(sound.samples.begin(), sound.samples.end(), [](float value) { return std::isfinite(value); }))
    damaged(where, "some samples are no finite numbers");
  return sound;
}

std::string kind_of(std::string_view data) {
  if (data.empty()) return "an empty file";
  if (data.substr(0, 4) == "fLaC") return "FLAC";
  if (data.substr(0, 4) == "OggS") return "Ogg";
  if (data.substr(0, 3) == "ID3") return "MP3";
  if (data.size() > 8 && data.substr(4, 4) == "ftyp") return "an MP4 or M4A file";
  return "a file of another format";
}

}  // namespace

Sound parse_wav(std::string_view data, const std::string& where) {
  if (data.size() > static_cast<size_t>(kMostSoundBytes)) refuse(where, "larger than " + std::to_string(kMostSoundBytes) + " bytes", "cut it into pieces");
  if (!is_wav(data))
    refuse(where, "expected a WAV file, got " + kind_of(data) + ": other formats are read in Python alone");
  std::string_view form, samples;
  bool has_samples = false;
  for (size_t place = kRiff; !has_samples && place <= data.size() && data.size() - place >= kHead;) {
    const std::string_view name = data.substr(place, 4);
    const auto size = static_cast<size_t>(number_at(data, place + 4, 4));
    const std::string_view content = data.substr(place + kHead, size);  // what is there of it
    if (name == "fmt ") form = content;
    if (name == "data") samples = content;
    if (name == "data" && content.size() < size && size <= static_cast<size_t>(kMostSoundBytes))  // who writes to a pipe states a size beyond all files
      refuse(where, "received " + std::to_string(content.size()) + " of " + std::to_string(size) + " bytes of samples: it is cut off", "give a whole file");
    has_samples = name == "data";
    place += kHead + size + size % 2;
  }
  if (form.size() < kForm) damaged(where, "its format has " + std::to_string(form.size()) + " bytes, expected " + std::to_string(kForm) + " or more");
  if (!has_samples) damaged(where, "none of its " + std::to_string(data.size()) + " bytes are said to be samples");
  return decode(format_of(form), samples, where);
}

Error too_long(const std::string& where, double seconds) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.0f", seconds);
  return {Kind::kPrompt, where + ": received " + shown + " s, expected at most " + std::to_string(kMostSeconds) + " s", "cut it into pieces, in pauses"};
}

Sound read_wav(const std::string& path) {
  std::string data;
  try {
    check_length(path);
    data = read_file(path, static_cast<size_t>(kMostSoundBytes));
  } catch (const FileError& error) {
    refuse(path, "cannot be read: " + error.reason, "check the path");
  }
  return parse_wav(data, path);
}

void check_samples(const Samples& samples, const std::string& where) {
  if (samples.empty()) refuse(where, "received no samples, expected a sound", "check where they come from");
  if (!std::all_of(samples.begin(), samples.end(), [](float value) { return std::isfinite(value); }))
    refuse(where, "received samples that are no finite numbers, expected a sound", "check where they come from");
}

}  // namespace spc::audio
