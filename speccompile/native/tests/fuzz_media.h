// Untrusted pictures and sounds: bytes that a client sends beside its text.
#pragma once

#include <string>
#include <string_view>

#include "../audio/reader.h"
#include "../byte_order.h"
#include "../images/decode.h"
#include "check.h"

// CRC-32 of a PNG's chunk.
inline uint32_t chunk_sum(std::string_view data) {
  uint32_t sum = ~0u;
  for (const char each : data) {
    sum ^= static_cast<uint8_t>(each);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0u);
  }
  return ~sum;
}

// Return a PNG whose chunks have right sums: without them libpng reads no changed chunk. Anything else is returned as it is.
inline std::string with_right_sums(std::string data) {
  if (data.substr(0, 4) != "\x89PNG") return data;
  size_t size = 0;
  for (size_t at = 8; at + 12 <= data.size(); at += size + 12) {
    size = spc::big_endian_32(data, at);
    if (size > data.size() - at - 12) break;
    const uint32_t sum = chunk_sum(std::string_view(data).substr(at + 4, size + 4));
    for (size_t i = 0; i < 4; ++i) data[at + 8 + size + i] = static_cast<char>(sum >> (24 - 8 * i));
  }
  return data;
}

inline void read_any_picture(const std::string& input) {
  const auto found = spc::images::decode(with_right_sums(input), "picture");
  CHECK(found->height > 0 && found->width > 0, "a picture without pixels");
  CHECK(found->data.size() == static_cast<size_t>(found->height * found->width) * 3, "%zu bytes of pixels", found->data.size());
}

// Features of a sound, as of a bundle that hears a tenth of a second at once.
inline void read_any_sound(const std::string& input) {
  spc::AudioSection about;
  about.sampling_rate = 16000;
  about.window = 400;
  about.hop = 160;
  about.mels = 8;
  about.frames = 10;
  const spc::audio::Sound sound = spc::audio::parse_wav(input, "sound");
  const spc::audio::HeardSound heard = spc::audio::hear(sound, about);
  CHECK(heard.features.frames >= about.frames, "%d frames", static_cast<int>(heard.features.frames));
  CHECK(heard.features.values.size() == static_cast<size_t>(heard.features.mels * heard.features.frames), "%zu values", heard.features.values.size());
  for (const float value : heard.features.values) CHECK(value == value, "a feature that is no number");
}

// Four samples of two channels and 16 bits.
inline std::string own_sound() {
  using namespace std::string_literals;
  return "RIFF\x34\0\0\0WAVEfmt \x10\0\0\0\1\0\2\0\x40\x1f\0\0\0\x7d\0\0\4\0\x10\0data\x10\0\0\0\1\2\3\4\5\6\7\x80\xff\xff\0\1\0\2\0\3"s;
}

constexpr const char* kPictureExamples[] = {"P6 2 1 255\nabcdef", "P5 # grey\n1 2 1000\n\1\2\3\4"};
