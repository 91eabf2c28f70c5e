#include "reader.h"

#include "../errors.h"
#include "../words.h"
#include "prompts.h"

namespace spc::images {

ImageReader::ImageReader(const ImageSettings& settings, std::function<RunEncoder()> open, std::shared_ptr<const Text> text, size_t limit)
    : settings(settings), encoder_(std::make_shared<Encoder>(settings, std::move(open), limit)), text_(std::move(text)) {}

std::vector<PicturePtr> ImageReader::pictures(const std::vector<GivenPicture>& given) const {
  if (static_cast<int64_t>(given.size()) > kMostPictures)
    throw Error(Kind::kPrompt, "received " + std::to_string(given.size()) + " pictures, expected at most " + std::to_string(kMostPictures), "give fewer");
  std::vector<PicturePtr> found;
  for (const GivenPicture& each : given) found.push_back(each.known ? each.known : encoder_->picture(each.pixels, each.is_low));
  return found;
}

SeenPrompt ImageReader::prompt(const std::string& text, const std::vector<PicturePtr>& pictures, bool special_tokens, const std::string& mark) const {
  std::vector<std::string> texts;
  for (const PicturePtr& picture : pictures) texts.push_back(encoder_->family(picture->is_low).text(picture->grid));
  const std::string whole = with_pictures(text, settings.token.value_or(""), texts, encoder_->family().alone());
  return of_ids(encode_parts(*text_, split(whole, mark), special_tokens), pictures);
}

SeenPrompt ImageReader::of_ids(TokenIds ids, const std::vector<PicturePtr>& pictures) const {
  std::shared_ptr<SequenceMedia> media = pictures.empty() ? nullptr : std::make_shared<SequenceMedia>(pictures, ids, encoder_);
  return {std::move(ids), std::move(media)};
}

bool is_low(const std::string& detail, const std::string& where) {
  if (detail != "low" && detail != "auto" && detail != "high")
    throw Error(Kind::kUsage, where + ": received " + python_repr(detail) + ", expected auto, high or low", "leave it out");
  return detail == "low";
}

void check_size(uint64_t width, uint64_t height, const std::string& where) {
  const auto side = static_cast<uint64_t>(kLongestSide);
  if (!width || !height)
    throw Error(Kind::kPrompt, where + ": received a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected at least 1 x 1", "give a whole picture");
  if (width > side || height > side || width * height > static_cast<uint64_t>(kMostPixels))
    throw Error(Kind::kPrompt, where + ": received a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected at most " +
                                   std::to_string(kMostPixels) + " pixels and sides of at most " + std::to_string(kLongestSide),
                "give a smaller picture");
}

std::shared_ptr<const Pixels> picture_of(const uint8_t* rgb, size_t width, size_t height, const std::string& where) {
  check_size(width, height, where);
  const size_t bytes = width * height * 3;
  return std::make_shared<const Pixels>(Pixels{static_cast<int64_t>(height), static_cast<int64_t>(width), {rgb, rgb + bytes}});
}

}  // namespace spc::images
