// Numbers of an image processor, and the placeholders of its pictures: plan.images of a manifest (machine/formats/image_settings.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../bundle/manifest.h"

namespace spc::images {

// See ImageSettings in Python. width: of a row of the encoder, with its parts for the decoder's layers.
struct ImageSettings {
  std::string family, resample;
  int64_t token_id = 0, width = 0, tile_rows = 0, tile_height = 0, tile_width = 0;
  std::optional<std::string> token, row_token;
  double rescale = 0;
  float mean[3] = {}, std[3] = {};
  double exact_mean[3] = {}, exact_std[3] = {};
  Json settings;
  bool both_ways = false, has_axes = false;

  // Return what a manifest says about pictures; nullopt for a bundle that sees none. Throws Error(kBundle).
  static std::optional<ImageSettings> of(const Manifest& manifest);

  // Return a setting of the family. Throws Error(kBundle) for another value.
  int64_t number(const char* name, int64_t least, int64_t most) const;
  bool flag(const char* name) const;
  const std::string& text(const char* name) const;
  // Return a list of at least one pair of numbers from 1 to `most`.
  std::vector<std::pair<int64_t, int64_t>> pairs(const char* name, int64_t most) const;
  std::pair<int64_t, int64_t> pair(const char* name, int64_t most) const;

  // Texts that stand for pictures and their rows, which are plain text where users write them.
  std::vector<std::string> placeholders() const;
};

// Throws Error(kBundle) for a value of plan.images.
[[noreturn]] void refuse_setting(const std::string& name, const Json& value, const std::string& expected);

}  // namespace spc::images
