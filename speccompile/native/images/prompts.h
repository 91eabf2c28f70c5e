// Placeholders of pictures in prompts: expanded to one token a row, or kept out of what users write (runtime/images/prompts.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../json.h"
#include "../text/text.h"

namespace spc::images {

// Return a character that occurs in none of the texts.
std::string unused_mark(const std::vector<std::string>& texts);
// Return the text with a mark inside each placeholder, so that it is none.
std::string marked(std::string text, const std::vector<std::string>& tokens, const std::string& mark);
// Return a value of JSON with each of its texts so marked; and all its texts.
Json marked(const Json& value, const std::vector<std::string>& tokens, const std::string& mark);
std::vector<std::string> texts_of(const Json& value);

// Return the text with the text of a picture for each placeholder; if it has none, all pictures before it. alone: what stands for a
// picture then. Throws Error(kPrompt) if there are others than pictures.
std::string with_pictures(std::string text, const std::string& token, const std::vector<std::string>& texts, const std::string& alone);

// Return the token ids of a text whose parts are encoded apart: no token reaches from one into the next.
TokenIds encode_parts(const Text& text, const std::vector<std::string>& parts, bool special_tokens);
// Return a tokenizer that takes placeholders as any other text when it encodes.
std::shared_ptr<const Text> without_placeholders(std::shared_ptr<const Text> text, std::vector<std::string> placeholders);
// Return the parts of a text between marks; the text itself without a mark.
std::vector<std::string> split(const std::string& text, const std::string& mark);

}  // namespace spc::images
