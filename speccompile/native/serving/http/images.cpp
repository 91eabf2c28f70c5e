#include "images.h"

#include <algorithm>
#include <cctype>

#include "../../base64.h"
#include "../../contract_table.h"
#include "../../errors.h"
#include "../../images/decode.h"
#include "../../images/prompts.h"
#include "../../images/reader.h"
#include "conversation.h"
#include "errors.h"
#include "prompts.h"

namespace spc::http {
namespace {

constexpr const char* kPart = "image_url";
constexpr size_t kShownUrl = 40;

bool is_picture(const Json& part) { return part["type"].is_text() && part["type"].text() == kPart; }

[[noreturn]] void refuse(const std::string& message, const std::string& hint, const std::string& code = "") {
  throw RequestError(400, message, "messages", code, hint);
}

// Return the length of "data:image/..;base64," at the beginning of a URL, 0 without it.
size_t head_of(const std::string& url) {
  const std::string kind = "data:image/", end = ";base64,";
  std::string first = url.substr(0, 80);
  std::transform(first.begin(), first.end(), first.begin(), [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  size_t at = kind.size();
  if (first.compare(0, at, kind) != 0) return 0;
  const auto is_name = [](unsigned char each) { return std::islower(each) || std::isdigit(each) || each == '.' || each == '+' || each == '-'; };
  while (at < first.size() && is_name(static_cast<unsigned char>(first[at]))) ++at;
  return at > kind.size() && first.compare(at, end.size(), end) == 0 ? at + end.size() : 0;
}

std::string data_of(const Json& url, const std::string& where) {
  const size_t head = url.is_text() ? head_of(url.text()) : 0;
  if (!head)
    refuse(where + ": received the URL " + (url.is_text() ? Json(first_characters(url.text(), kShownUrl)) : url).repr() +
               ", expected data:image/..;base64,.. with the picture itself",
           "nothing is fetched from the network: encode the file, for example by base64 -w0 FILE");
  const std::string& text = url.text();
  if (text.size() > static_cast<size_t>(kMostPictureBytes) * 4 / 3 + head + 4)
    refuse(where + ": received a URL of " + std::to_string(text.size()) + " characters, expected at most " + std::to_string(kMostPictureBytes) + " bytes",
           "give a smaller picture");
  const std::optional<std::string> data = from_base64(std::string_view(text).substr(head));
  if (!data) refuse(where + ": the picture is no base64", "encode the whole file");
  return *data;
}

bool is_low(const Json& detail, const std::string& where) {
  const std::string asked = detail.is_null() ? "auto" : detail.text();
  if (!detail.is_null() && asked.empty()) refuse(where + ": received " + detail.repr() + ", expected auto, high or low", "leave it out");
  try {
    return images::is_low(asked, where);
  } catch (const Error& error) {
    refuse(error.message, error.hint);
  }
}

images::GivenPicture picture_of(const Json& part, const std::string& where, size_t number) {
  const Json& given = part[kPart];
  const bool is_object = given.type() == Json::Type::kObject;
  const std::string data = data_of(is_object ? given["url"] : given, where);
  const bool low = is_object && is_low(given["detail"], where + ".image_url.detail");
  try {
    return {images::decode(data, "images[" + std::to_string(number) + "]"), low};
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt && error.kind != Kind::kEngine) throw;
    refuse(error.message, error.hint);
  }
}

// A message's parts as templates know them.
Json::List parts_of(const Json::List& content) {
  Json::List found;
  for (const Json& part : content)
    found.push_back(is_picture(part) ? Json::Object{{"type", "image"}} : Json::Object{{"type", "text"}, {"text", part["text"]}});
  return found;
}

}  // namespace

std::optional<ShownMessages> shown_messages(const Json& body, const Bundle& bundle) {
  const Json::List& messages = body["messages"].list();
  const auto shows = [](const Json& message) { return std::any_of(message["content"].list().begin(), message["content"].list().end(), is_picture); };
  if (!bundle.vision() || std::none_of(messages.begin(), messages.end(), shows)) return std::nullopt;
  for (const char* const name : {"continue_final_message", "truncate_prompt_tokens"})
    if (const Json* const value = body.find(name); value && !value->is_null() && !(value->type() == Json::Type::kBool && !value->boolean()))
      throw RequestError(400, std::string(name) + ": received " + value->repr() + " beside pictures, no part of which can be dropped or continued", name,
                         "unsupported_parameter", "leave it out");
  ShownMessages found{body, {}};
  Json::List rest;
  for (size_t number = 0; number < messages.size(); ++number) {
    Json message = messages[number];
    if (shows(message)) {
      Json::List texts;
      for (size_t place = 0; place < messages[number]["content"].list().size(); ++place) {
        const Json& part = messages[number]["content"].list()[place];
        const std::string where = "messages[" + std::to_string(number) + "].content[" + std::to_string(place) + "]";
        is_picture(part) ? found.pictures.push_back(picture_of(part, where, found.pictures.size())) : texts.push_back(part);
      }
      message.set("content", texts);
    }
    rest.push_back(message);
  }
  found.rest.set("messages", rest);
  return found;
}

TokenIds shown_prompt(const Json& body, const Json& fields, ShownMessages& shown, const Bundle& bundle, const Json& tools, bool fits) {
  Json::List messages;
  for (size_t number = 0; number < body["messages"].list().size(); ++number) {
    Json plain = plain_message(fields["messages"].list()[number], "messages[" + std::to_string(number) + "]");
    const Json::List& content = body["messages"].list()[number]["content"].list();
    if (std::any_of(content.begin(), content.end(), is_picture)) plain.set("content", parts_of(content));
    messages.push_back(plain);
  }
  const images::ImageReader& reader = *bundle.vision();
  const char* const kVariables = "chat_template_kwargs";
  const Json given(Json::List{Json(messages), fields[kVariables], tools});
  const std::string mark = images::unused_mark(images::texts_of(given));
  const Json own = images::marked(given, reader.settings.placeholders(), mark);
  Json marked_fields = fields;
  if (fields.find(kVariables)) marked_fields.set(kVariables, own.list()[1]);
  try {
    const std::string text = chat_text(marked_fields, bundle.chat(), own.list()[2], &own.list()[0].list());
    if (fits) check_bytes(text, bundle, "messages");
    const std::vector<images::PicturePtr> pictures = reader.pictures(shown.pictures);
    for (size_t number = 0; number < pictures.size(); ++number) shown.pictures[number].known = pictures[number];
    return reader.prompt(text, pictures, false, mark).ids;
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt) throw;
    refuse(error.message, error.hint);
  }
}

}  // namespace spc::http
