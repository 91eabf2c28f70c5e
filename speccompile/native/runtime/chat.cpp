#include "chat.h"

#include <algorithm>
#include <set>

#include "../bundle/hashes.h"
#include "../errors.h"
#include "../text/jinja/render.h"
#include "../words.h"

namespace spc {
namespace {

constexpr const char *kRebuild = "build the bundle again", *kWithoutChat = "leave out --chat (chat=True)";

Json read(const std::string& path) {
  try {
    return read_json(path);
  } catch (const Error& error) {
    throw Error(error.kind, error.message, kRebuild);
  }
}

bool are_texts(const Json::Object& texts) {
  return std::all_of(texts.begin(), texts.end(), [](const Json::Member& each) { return each.second.is_text(); });
}

}  // namespace

ChatTemplates::ChatTemplates(const std::string& path) : ChatTemplates(read(path), path) {}

ChatTemplates::ChatTemplates(const Json& data, const std::string& path) {
  if (data["template"].is_text())
    templates_ = {{kDefaultTemplate, data["template"]}};
  else if (are_texts(data["templates"].object()))
    templates_ = data["templates"].object();
  special_tokens_ = data["special_tokens"].object();
  if (templates_.empty() || !data["special_tokens"].is_object() || !are_texts(special_tokens_))
    throw Error(Kind::kBundle, path + ": expected {\"template\": text, \"special_tokens\": {name: text}}, or \"templates\": {name: text}", kRebuild);
}

// Choose a template as transformers does: by its name, `tool_use` with tools, else `default`. A tokenizer's only template is the
// default one.
const std::string& ChatTemplates::chosen(const Json& variables) const {
  const Json all(templates_);
  const bool has_tools = !variables["tools"].is_null() && all.find(kToolTemplate);
  const Json* const asked = variables.find("chat_template");
  const std::string wanted = asked && asked->is_text() ? asked->text() : has_tools ? kToolTemplate : kDefaultTemplate;
  const bool is_text = !asked || asked->is_null() || asked->is_text();
  for (const auto& [name, text] : templates_)
    if (is_text && name == wanted) return text.text();
  std::set<std::string> names;
  for (const auto& [name, text] : templates_) names.insert(name);
  const std::string received = is_text ? python_repr(wanted) : asked->repr();
  throw Error(Kind::kPrompt, "this bundle's tokenizer has no chat template " + received + ", only " + comma_separated(names),
              "name one of them as chat_template among the template's variables");
}

std::string ChatTemplates::apply(const Json::List& messages, bool add_generation_prompt, const Json& variables) const {
  if (!has_templates()) throw Error(Kind::kPrompt, "this bundle's tokenizer has no chat template", kWithoutChat);
  const std::string& source = chosen(variables);
  try {
    jinja::Dict given;
    given.set("tools", {});
    given.set("documents", {});
    for (const auto& [name, value] : variables.object())
      if (name != "chat_template") given.set(name, jinja::Value::of(value));
    for (const auto& [name, text] : special_tokens_) given.set(name, text.text());
    given.set("add_generation_prompt", add_generation_prompt);
    given.set("messages", jinja::Value::of(messages));
    return jinja::render(source, given);
  } catch (const jinja::TemplateError& error) {
    const std::string line = error.line ? " (its line " + std::to_string(error.line) + ")" : "";
    throw Error(Kind::kPrompt, "the chat template does not take these messages: " + error.message + line, std::string("change the messages, or ") + kWithoutChat);
  }
}

}  // namespace spc
