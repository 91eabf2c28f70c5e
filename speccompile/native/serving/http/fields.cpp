#include "fields.h"

#include "errors.h"
#include "schema.h"
#include "tables.h"

namespace spc::http {
namespace {

const Json& unsupported() {
  static const Json read = Json::parse(kUnsupported);
  return read;
}

constexpr const char *kNoAudio = "but this model takes no audio: expected text", *kNoVideos = "but this model takes no videos: expected text",
                     *kNoFiles = "but this model takes no files: expected text", *kOtherName = "expected text, or image_url for an image";
// Types of parts, as OpenAI and others name them, and what is said about those that are left once images of a model that sees are read.
struct Medium {
  const char *type, *said;
};
constexpr Medium kMedia[] = {{"image_url", "but this model takes no images: expected text"},
                             {"image", kOtherName}, {"input_image", kOtherName}, {"input_audio", kNoAudio}, {"audio", kNoAudio}, {"audio_url", kNoAudio},
                             {"video_url", kNoVideos}, {"video", kNoVideos}, {"file", kNoFiles}, {"input_file", kNoFiles}};

void check_part(const Json& part, const std::string& where) {
  for (const Medium& medium : kMedia)
    if (part["type"].is_text() && part["type"].text() == medium.type)
      throw RequestError(400, where + ": received " + shown(part["type"]) + ", " + medium.said, where, "unsupported_value", "leave the part out");
}

// Throws RequestError for the first part of a message that is another medium than text.
void check_parts(const Json& messages) {
  for (size_t number = 0; number < messages.list().size(); ++number) {
    const Json::List& content = messages.list()[number]["content"].list();
    for (size_t index = 0; index < content.size(); ++index)
      check_part(content[index], "messages[" + std::to_string(number) + "].content[" + std::to_string(index) + "].type");
  }
}

Json validate(const Json& body, const Json& schema) {
  static const Json object = Json::Object{{"type", "object"}};
  check(body, object);
  for (const auto& [name, harmless] : unsupported().object())
    if (const Json* const value = body.find(name); value && first_problem(*value, harmless))
      throw RequestError(400, name + ": received " + shown(*value) + ", which is not supported", name, "unsupported_parameter", "leave it out");
  check_parts(body["messages"]);
  check(body, schema);
  Json fields{Json::Object{}};
  for (const auto& [name, value] : body.object())
    if (!value.is_null() && schema["properties"].find(name)) fields.set(name, value);
  return fields;
}

}  // namespace

Json validate_chat(const Json& body) {
  static const Json schema = Json::parse(kChatSchema);
  return validate(body, schema);
}

Json validate_completion(const Json& body) {
  static const Json schema = Json::parse(kCompletionSchema);
  return validate(body, schema);
}

Json validate_tokenize(const Json& body) {
  static const Json schema = Json::parse(kTokenizeSchema);
  return validate(body, schema);
}

Json validate_detokenize(const Json& body) {
  static const Json schema = Json::parse(kDetokenizeSchema);
  return validate(body, schema);
}

}  // namespace spc::http
