#include "settings.h"

#include <algorithm>
#include <cmath>

#include "../errors.h"
#include "pixels.h"

namespace spc::images {
namespace {

constexpr int64_t kMostSize = 1 << 20;  // of sides, rows and widths
constexpr int64_t kMostTileSide = 1 << 13;

int64_t whole(const Json& value, const std::string& name, int64_t least, int64_t most) {
  if (value.is_integer() && value.integer() >= least && value.integer() <= most) return value.integer();
  refuse_setting(name, value, "a number from " + std::to_string(least) + " to " + std::to_string(most));
}

std::optional<std::string> text_or_null(const Json& value, const std::string& name) {
  if (value.is_null()) return std::nullopt;
  if (value.is_text() && !value.text().empty()) return value.text();
  refuse_setting(name, value, "a text or null");
}

void read_channels(const Json& value, const std::string& name, double* exact, float* rounded) {
  const Json::List& list = value.list();
  const bool is_right = list.size() == 3 && std::all_of(list.begin(), list.end(), [](const Json& each) { return each.is_number() && std::isfinite(each.number()); });
  if (!is_right) refuse_setting(name, value, "a number for each of 3 channels");
  for (size_t channel = 0; channel < 3; ++channel) {
    exact[channel] = list[channel].number();
    rounded[channel] = static_cast<float>(exact[channel]);
  }
}

const Tensor* media_of(const Manifest& manifest) {
  for (const Graph& graph : manifest.graphs)
    if (const Tensor* const found = graph.input(names::kMedia)) return found;
  return nullptr;
}

}  // namespace

void refuse_setting(const std::string& name, const Json& value, const std::string& expected) {
  throw Error(Kind::kBundle, "plan.images." + name + ": received " + first_characters(value.repr(), 80) + ", expected " + expected,
              "build the bundle again with this speccompile");
}

std::optional<ImageSettings> ImageSettings::of(const Manifest& manifest) {
  const Json& written = manifest.json["plan"]["images"];
  const Tensor* const media = media_of(manifest);
  if (written.is_null() && !media) return std::nullopt;
  if (!written.is_object() || !media)
    throw Error(Kind::kBundle, "plan.images: received " + std::string(written.python_type()) + ", expected an object in a bundle whose graphs have the input 'media', and none in another",
                "build the bundle again with this speccompile");
  ImageSettings made;
  made.family = written["family"].text();
  made.token_id = whole(written["token_id"], "token_id", 0, INT32_MAX);
  made.width = media->shape.empty() ? 0 : media->shape.back().size;
  made.tile_rows = whole(written["tile_rows"], "tile_rows", 1, kMostSize);
  const Json::List& tile = written["tile"].list();
  if (tile.size() != 2) refuse_setting("tile", written["tile"], "a height and a width");
  made.tile_height = whole(tile[0], "tile", 1, kMostTileSide);
  made.tile_width = whole(tile[1], "tile", 1, kMostTileSide);
  made.token = text_or_null(written["token"], "token");
  made.row_token = text_or_null(written["row_token"], "row_token");
  made.resample = written["resample"].text();
  if (!is_filter(made.resample)) refuse_setting("resample", written["resample"], "bilinear, bicubic or lanczos");
  made.rescale = written["rescale"].number();
  if (!std::isfinite(made.rescale) || made.rescale == 0) refuse_setting("rescale", written["rescale"], "a number");
  read_channels(written["mean"], "mean", made.exact_mean, made.mean);
  read_channels(written["std"], "std", made.exact_std, made.std);
  if (std::any_of(std::begin(made.std), std::end(made.std), [](float each) { return each == 0; })) refuse_setting("std", written["std"], "numbers other than 0");
  made.settings = written["settings"];
  made.both_ways = written["both_ways"].boolean();
  made.has_axes = !written["axes"].list().empty();
  return made;
}

int64_t ImageSettings::number(const char* name, int64_t least, int64_t most) const { return whole(settings[name], std::string("settings.") + name, least, most); }

bool ImageSettings::flag(const char* name) const {
  if (!settings[name].is_bool()) refuse_setting(std::string("settings.") + name, settings[name], "true or false");
  return settings[name].boolean();
}

const std::string& ImageSettings::text(const char* name) const {
  if (!settings[name].is_text()) refuse_setting(std::string("settings.") + name, settings[name], "a text");
  return settings[name].text();
}

std::vector<std::pair<int64_t, int64_t>> ImageSettings::pairs(const char* name, int64_t most) const {
  const std::string field = std::string("settings.") + name;
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const Json& each : settings[name].list()) {
    if (each.list().size() != 2) refuse_setting(field, each, "two numbers");
    found.emplace_back(whole(each.list()[0], field, 1, most), whole(each.list()[1], field, 1, most));
  }
  if (found.empty()) refuse_setting(field, settings[name], "at least one pair of numbers");
  return found;
}

std::pair<int64_t, int64_t> ImageSettings::pair(const char* name, int64_t most) const {
  const std::string field = std::string("settings.") + name;
  const Json::List& list = settings[name].list();
  if (list.size() != 2) refuse_setting(field, settings[name], "two numbers");
  return {whole(list[0], field, 1, most), whole(list[1], field, 1, most)};
}

std::vector<std::string> ImageSettings::placeholders() const {
  std::vector<std::string> found;
  for (const std::optional<std::string>& each : {token, row_token})
    if (each && std::find(found.begin(), found.end(), *each) == found.end()) found.push_back(*each);
  return found;
}

}  // namespace spc::images
