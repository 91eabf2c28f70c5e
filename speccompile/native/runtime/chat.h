// Chat templates: write the messages of a conversation as the model saw them in its training (runtime/text/chat.py).
#pragma once

#include <string>
#include <vector>

#include "../json.h"

namespace spc {

// The templates of a tokenizer, by name, and its special tokens.
class ChatTemplates {
 public:
  ChatTemplates() = default;
  // Read a `tokenizer/chat.json`. Throws Error(kBundle) when it holds no template.
  explicit ChatTemplates(const std::string& path);
  // Take the content of a `tokenizer/chat.json`. path: for messages.
  ChatTemplates(const Json& data, const std::string& path);
  bool has_templates() const { return !templates_.empty(); }

  // Return the prompt for some messages, special tokens included: encode it without adding any. add_generation_prompt: end where
  // the model's answer begins. variables: an object of further ones, such as enable_thinking; of named templates `chat_template`
  // says which. Throws Error(kPrompt) when there is no template, or it does not take the messages.
  std::string apply(const Json::List& messages, bool add_generation_prompt, const Json& variables) const;
  // Return the template of a conversation with these variables. Throws Error(kPrompt) where there is no such template.
  const std::string& chosen(const Json& variables) const;

 private:
  Json::Object templates_;
  Json::Object special_tokens_;
};

}  // namespace spc
