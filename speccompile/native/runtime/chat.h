// Chat templates are Jinja, which this runtime does not have: they are refused by name (runtime/chat.py).
#pragma once

#include <string>

namespace spc {

// Throws Error(kBundle) when a `tokenizer/chat.json` holds no template.
void check_chat(const std::string& path);

// Throws what is to be said to who asks for a template. has_template: whether the bundle has one.
[[noreturn]] void refuse_chat(bool has_template);

}  // namespace spc
