#include "family.h"

#include <algorithm>

#include "../errors.h"
#include "../words.h"

namespace spc::images {
namespace {

struct Known {
  const char* name;
  MakeFamily make;
};
constexpr Known kFamilies[] = {{"gemma3", make_gemma3},     {"gemma4", make_gemma4},
                               {"idefics3", make_idefics3}, {"internvl", make_internvl},
                               {"lfm2_vl", make_lfm2_vl},   {"llava", make_llava},
                               {"llava_onevision", make_llava_onevision}, {"pixtral", make_pixtral},
                               {"qwen_vl", make_qwen_vl}};

constexpr int64_t kNarrowest = 200;  // longest side of a picture, in units of the other, where the shortest is enlarged

}  // namespace

Rows Family::joined(const std::vector<Rows>& found, const Grid&) const {
  Rows all{0, found.empty() ? 0 : found.front().width, {}};
  for (const Rows& each : found) {
    all.count += each.count;
    all.values.insert(all.values.end(), each.values.begin(), each.values.end());
  }
  return all;
}

float Family::normalized(uint8_t pixel, size_t channel) const {
  const float scaled = static_cast<float>(static_cast<double>(pixel) * images.rescale);
  return (scaled - images.mean[channel]) / images.std[channel];
}

std::vector<float> Family::table(size_t channel) const {
  std::vector<float> found;
  for (int pixel = 0; pixel < 256; ++pixel) found.push_back(normalized(static_cast<uint8_t>(pixel), channel));
  return found;
}

std::unique_ptr<const Family> make_family(const ImageSettings& images, bool is_low) {
  std::vector<std::string> known;
  for (const Known& each : kFamilies) {
    if (images.family == each.name) return each.make(images, is_low);
    known.emplace_back(each.name);
  }
  throw Error(Kind::kEngine, "plan.images.family: received a bundle whose target sees pictures as " + python_repr(images.family) +
                                 " does, expected one of " + joined(known) + ": the runtime in C++ has no other",
              "run it in Python (speccompile generate), or build the recipe without target.images");
}

void check_shape(int64_t height, int64_t width) {
  if (std::max(height, width) > kNarrowest * std::min(height, width))
    throw Error(Kind::kPrompt, "received a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected sides of at most " +
                                   std::to_string(kNarrowest) + " to 1",
                "crop the picture");
}

std::string repeated(std::string_view text, int64_t count) {
  std::string found;
  for (int64_t i = 0; i < count; ++i) found += text;
  return found;
}

}  // namespace spc::images
