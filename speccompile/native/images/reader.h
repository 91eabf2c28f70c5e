// Prompts with pictures of an open bundle, and texts in which placeholders are text (runtime/images/reader.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../runtime/ort.h"
#include "encoder.h"
#include "media.h"

namespace spc::images {

// A prompt's tokens, and its pictures, null without.
struct SeenPrompt {
  TokenIds ids;
  std::shared_ptr<SequenceMedia> media;
};

class ImageReader {
 public:
  // text: the bundle's tokenizer, or null. limit: bytes of encoder rows that are kept.
  ImageReader(const ImageSettings& settings, std::function<RunEncoder()> open, std::shared_ptr<const Text> text, size_t limit);

  // Return the pictures of one prompt. Throws Error(kPrompt).
  std::vector<PicturePtr> pictures(const std::vector<GivenPicture>& given) const;
  // Return a text with pictures at its placeholders. mark: a character inside placeholders that are none. Throws Error(kPrompt).
  SeenPrompt prompt(const std::string& text, const std::vector<PicturePtr>& pictures, bool special_tokens = true, const std::string& mark = "") const;
  // Return a prompt of token ids that has the placeholder for every row. Throws Error(kPrompt).
  SeenPrompt of_ids(TokenIds ids, const std::vector<PicturePtr>& pictures) const;

  EncoderUse encoder_use() const { return encoder_->use(); }

  const ImageSettings settings;

 private:
  const std::shared_ptr<Encoder> encoder_;
  const std::shared_ptr<const Text> text_;
};

// Return the picture of an array of a caller. where: its name in messages. Throws Error(kPrompt) for what is beyond the limits.
std::shared_ptr<const Pixels> picture_of(const uint8_t* rgb, size_t width, size_t height, const std::string& where);
// Return whether a picture is read with less detail: OpenAI's low, unlike auto and high. where: its name in messages. Throws
// Error(kUsage) for another word.
bool is_low(const std::string& detail, const std::string& where);
// Throws Error(kPrompt) for a picture that is empty or beyond the limits.
void check_size(uint64_t width, uint64_t height, const std::string& where);

// Return a function that opens the encoder's graph in a bundle folder.
std::function<RunEncoder()> encoder_of(const Ort& library, const std::string& folder, int threads, bool verify);

}  // namespace spc::images
