#include "conversation.h"

#include <algorithm>

#include "../../errors.h"
#include "../../words.h"
#include "errors.h"

namespace spc::http {
namespace {

constexpr size_t kShown = 80;

std::string shown(const Json& value) {
  const std::string text = value.repr(), first = first_characters(text, kShown);
  return first.size() < text.size() ? first + ".." : text;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) { throw RequestError(400, where + ": " + what, where); }

std::string content_of(const Json& message, const std::string& where) {
  const Json& content = message["content"];
  if (content.is_text()) return content.text();
  if (content.is_null()) {
    if (message["role"].text() == "assistant") return "";  // its message has tool calls
    refuse(where, std::string("received ") + "nothing" + ", expected a text");
  }
  std::string text;
  for (size_t place = 0; place < content.list().size(); ++place) text += (place ? "\n" : "") + content.list()[place]["text"].text();
  return text;
}

// A call with its arguments as values instead of JSON text.
Json plain_call(const Json& call, const std::string& where) {
  const Json* const function = call.find("function");
  const Json* const arguments = function ? function->find("arguments") : nullptr;
  const auto wrong = [&] { refuse(where, "received the call " + shown(call) + ", expected a function with its arguments as JSON"); };
  if (!arguments) wrong();
  Json read = *arguments;
  if (arguments->is_null() || (arguments->is_text() && arguments->text().empty())) read = Json(Json::Object());  // of a function without parameters
  try {
    if (arguments->is_text() && !arguments->text().empty()) read = Json::parse(arguments->text());
  } catch (const JsonError&) {
    wrong();
  }
  Json plain = call, inner = *function;
  inner.set("arguments", read);
  plain.set("function", inner);
  return plain;
}

}  // namespace

Json plain_message(const Json& message, const std::string& where) {
  if (const Json& pictures = message["images"]; !pictures.is_null() && !(pictures.is_list() && pictures.list().empty()))
    refuse(where + ".images",
           "received pictures beside the content, expected them as its parts, as in {\"type\": \"image_url\", \"image_url\": {\"url\": ..}}");
  Json plain{Json::Object{}};
  for (const auto& [name, value] : message.object())
    if (name != "tool_calls") plain.set(name, value);
  if (message["role"].text() == "developer") plain.set("role", "system");
  plain.set("content", content_of(message, where + ".content"));
  const Json& calls = message["tool_calls"];
  if (calls.is_null() || (calls.is_list() && calls.list().empty())) return plain;  // templates ask whether the key is there
  if (!calls.is_list()) refuse(where + ".tool_calls", "received " + shown(calls) + ", expected a list of calls");
  Json::List read;
  for (const Json& call : calls.list()) read.push_back(plain_call(call, where + ".tool_calls"));
  plain.set("tool_calls", read);
  return plain;
}

std::string chat_text(const Json& fields, const ChatTemplates& templates, const Json& tools, const Json::List* shown) {
  constexpr const char* kContinue = "continue_final_message";
  if (!templates.has_templates()) throw RequestError(400, "this model has no chat template", "messages", "", "use /v1/completions");
  const bool goes_on = fields[kContinue].boolean();
  const bool opens = fields.find("add_generation_prompt") ? fields["add_generation_prompt"].boolean() : !goes_on;
  if (goes_on && opens) refuse(kContinue, "received true, and add_generation_prompt is true as well, expected one of them");
  Json::List messages = shown ? *shown : Json::List();
  for (size_t index = 0; !shown && index < fields["messages"].list().size(); ++index)
    messages.push_back(plain_message(fields["messages"].list()[index], "messages[" + std::to_string(index) + "]"));
  Json variables = fields.find("chat_template_kwargs") ? fields["chat_template_kwargs"] : Json(Json::Object{});
  if (!tools.is_null()) variables.set("tools", tools);
  std::string written;
  try {
    written = templates.apply(messages, opens, variables);
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt) throw;
    throw RequestError(400, error.message, "messages");
  }
  if (!goes_on) return written;
  const std::string last = trimmed(messages.back()["content"].text());
  const size_t found = written.rfind(last);
  if (found == std::string::npos) refuse(kContinue, "the chat template changes the last message, so that it cannot be continued");
  return written.substr(0, found + last.size());
}

}  // namespace spc::http
