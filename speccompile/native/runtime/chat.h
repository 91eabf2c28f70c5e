// Refusal of chat templates: they are Jinja, which this runtime does not support (runtime/text/chat.py).
#pragma once

#include <string>

namespace spc {

// Throws Error(kBundle) when a `tokenizer/chat.json` holds no template.
void check_chat(const std::string& path);

// Throws the error of a request for a chat template. has_template: whether the bundle has one.
[[noreturn]] void refuse_chat(bool has_template);

}  // namespace spc
