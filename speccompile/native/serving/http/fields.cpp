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

// Types of parts, as OpenAI and others name them, and the media that no bundle takes here.
struct Medium {
  const char *type, *name;
};
constexpr Medium kMedia[] = {{"image_url", "images"}, {"image", "images"},     {"input_image", "images"}, {"input_audio", "audio"}, {"audio", "audio"},
                             {"audio_url", "audio"},  {"video_url", "videos"}, {"video", "videos"},       {"file", "files"},        {"input_file", "files"}};

void check_part(const Json& part, const std::string& where) {
  for (const Medium& medium : kMedia)
    if (part["type"].is_text() && part["type"].text() == medium.type)
      throw RequestError(400, where + ": received " + shown(part["type"]) + ", but this model takes no " + medium.name + ": expected text", where,
                         "unsupported_value", "leave the part out");
}

// Throws RequestError for the first part of a message that is another medium than text.
void check_parts(const Json& messages) {
  for (size_t number = 0; number < messages.list().size(); ++number) {
    const Json::List& content = messages.list()[number]["content"].list();
    for (size_t index = 0; index < content.size(); ++index)
      check_part(content[index], "messages[" + std::to_string(number) + "].content[" + std::to_string(index) + "].type");
  }
}

[[noreturn]] void refuse(const std::string& name, const Json& value, const char* reason) {
  throw RequestError(400, name + ": received " + shown(value) + ", " + reason, name, "unsupported_parameter", "leave it out, or serve the bundle with speccompile serve");
}

// Throws RequestError for what Python's server has, and this one lacks.
void check_native(const Json& fields) {
  constexpr const char* kForms[] = {"structured_outputs", "guided_json", "guided_regex", "guided_grammar", "guided_choice"};
  constexpr const char* kReason = "but speccompile-native has no library for constraints";
  if (const Json* const format = fields.find("response_format"); format && (*format)["type"].text() != "text") refuse("response_format", *format, kReason);
  for (const char* const name : kForms)
    if (const Json* const value = fields.find(name)) refuse(name, *value, kReason);
  const Json *const tools = fields.find("tools"), *const choice = fields.find("tool_choice");
  const bool has_none = choice && choice->is_text() && choice->text() == "none";
  if (tools && !tools->list().empty() && !has_none) refuse("tools", *tools, "but speccompile-native reads no tool calls");
  if (choice && !has_none && !(choice->is_text() && choice->text() == "auto")) refuse("tool_choice", *choice, kReason);
  if (fields["return_drafts"].boolean()) refuse("return_drafts", fields["return_drafts"], "but speccompile-native does not cut texts by drafts");
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
  check_native(fields);
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
