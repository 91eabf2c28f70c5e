#include "images.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <mutex>
#include <string_view>
#include <utility>

#include "../../base64.h"
#include "../../contract_table.h"
#include "../../errors.h"
#include "../../images/decode.h"
#include "../../images/prompts.h"
#include "../../images/reader.h"
#include "conversation.h"
#include "errors.h"
#include "prompts.h"
#include "tables.h"

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

// The fault of a text that is no base64, and what to do about it (runtime/images/data_urls.py).
std::pair<std::string, std::string> base64_problem(std::string_view text) {
  constexpr size_t kLost = 3;  // letters that four lack where one stands alone, which is less than a byte
  const std::string whole = "encode the whole file";
  const size_t count = text.find_last_not_of('=') + 1, ends = text.size() - count, lacks = (4 - count % 4) % 4;
  const auto is_letter = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) || each == '+' || each == '/'; };
  const auto at = static_cast<size_t>(std::find_if_not(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count), is_letter) - text.begin());
  if (at < count) {
    const char wrong = text[at];
    const std::string said = "character " + std::to_string(at + 1) + " is " + python_repr(first_characters(std::string(text.substr(at, 4)), 1)) +
                             ", expected A to Z, a to z, 0 to 9, + and /";
    if (std::string_view(" \t\r\n").find(wrong) != std::string_view::npos) return {said, "leave out spaces and line ends, as base64 -w0 FILE does"};
    if (wrong == '-' || wrong == '_') return {said, "write + in place of -, and / in place of _"};
    return {said, wrong == '%' ? "send the text as it is, not percent-encoded" : whole};
  }
  if (lacks == kLost) return {"it has " + std::to_string(count) + " letters, which no number of bytes has", whole};
  if (ends != lacks) return {"it has " + std::to_string(count) + " letters and then " + std::to_string(ends) + " times '=', expected " + std::to_string(lacks) + " times", whole};
  return {"its last letter has bits that belong to no byte", whole};
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
  if (data) return *data;
  const auto [problem, hint] = base64_problem(std::string_view(text).substr(head));
  refuse(where + ": the picture is no base64: " + problem, hint);
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

std::atomic<int64_t> held_bytes{0};

// Return pixels that are counted as long as they live. Throws RequestError where those of all requests are too many.
std::shared_ptr<const images::Pixels> counted(std::shared_ptr<const images::Pixels> pixels) {
  const auto size = static_cast<int64_t>(pixels->data.size());
  const images::Pixels* const known = pixels.get();
  std::shared_ptr<const images::Pixels> found(known, [own = std::move(pixels), size](const images::Pixels*) mutable {
    own.reset();
    held_bytes -= size;
  });
  if (const int64_t all = held_bytes += size; all > kMostHeldBytes)
    throw RequestError(503, "the pictures of all requests have " + std::to_string(all) + " bytes of pixels, expected at most " + std::to_string(kMostHeldBytes), "", "overloaded")
        .of_kind(kUnavailable)
        .with("Retry-After", "1");
  return found;
}

// One picture at a time: a file of some kilobytes may become 200 MB, and the rounds of others need the processor.
std::shared_ptr<const images::Pixels> decoded(const std::string& data, const std::string& where) {
  static std::mutex turn;
  const std::lock_guard<std::mutex> held(turn);
  return counted(images::decode(data, where));
}

images::GivenPicture picture_of(const Json& part, const std::string& where, size_t number) {
  const Json& given = part[kPart];
  const bool is_object = given.type() == Json::Type::kObject;
  const std::string data = data_of(is_object ? given["url"] : given, where);
  const bool low = is_object && is_low(given["detail"], where + ".image_url.detail");
  try {
    return {decoded(data, "images[" + std::to_string(number) + "]"), low};
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt && error.kind != Kind::kEngine) throw;
    refuse(error.message, error.hint);
  }
}

// Throws RequestError for more pictures than a request may have.
void check_count(const Json::List& messages) {
  int64_t count = 0;
  for (const Json& message : messages) count += std::count_if(message["content"].list().begin(), message["content"].list().end(), is_picture);
  if (count > kMostPictures) refuse("received " + std::to_string(count) + " pictures, expected at most " + std::to_string(kMostPictures), "give fewer");
}

// Throws RequestError for more pixels than a request may have: a body of some kilobytes may name any number of them.
void check_pixels(const std::vector<images::GivenPicture>& pictures) {
  size_t bytes = 0;
  for (const images::GivenPicture& each : pictures) bytes += each.pixels->data.size();
  if (bytes > static_cast<size_t>(kMostPixelBytes))
    refuse("received " + std::to_string(pictures.size()) + " or more pictures with " + std::to_string(bytes >> 20) + " MiB of pixels, expected at most " +
               std::to_string(kMostPixelBytes >> 20) + " MiB in a request",
           "give smaller pictures, or fewer", "limit_exceeded");
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
  check_count(messages);
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
        check_pixels(found.pictures);
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
