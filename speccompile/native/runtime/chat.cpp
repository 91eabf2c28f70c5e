#include "chat.h"

#include <algorithm>

#include "../bundle/hashes.h"
#include "../errors.h"

namespace spc {
namespace {

constexpr const char* kRebuild = "build the bundle again";

Json read(const std::string& path) {
  try {
    return read_json(path);
  } catch (const Error& error) {
    throw Error(error.kind, error.message, kRebuild);
  }
}

}  // namespace

void check_chat(const std::string& path) {
  const Json data = read(path);
  const Json::Object& tokens = data["special_tokens"].object();
  const Json::Object& named = data["templates"].object();
  const auto are_texts = [](const Json::Object& texts) {
    return std::all_of(texts.begin(), texts.end(), [](const Json::Member& each) { return each.second.is_text(); });
  };
  const bool has_any = data["template"].is_text() || (!named.empty() && are_texts(named));
  if (!has_any || !data["special_tokens"].is_object() || !are_texts(tokens))
    throw Error(Kind::kBundle, path + ": expected {\"template\": text, \"special_tokens\": {name: text}}, or \"templates\": {name: text}",
                kRebuild);
}

void refuse_chat(bool has_template) {
  if (!has_template) throw Error(Kind::kPrompt, "this bundle's tokenizer has no chat template", "leave --chat out");
  throw Error(Kind::kEngine, "chat templates need Jinja, which the native runtime does not have",
              "write the template's text yourself (it is in the bundle's tokenizer/chat.json), use the Python runtime, or leave --chat out");
}

}  // namespace spc
