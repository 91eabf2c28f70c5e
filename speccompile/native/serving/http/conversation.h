// Conversations of /v1/chat/completions in the bundle's chat template (serving/http/prompts.py, runtime/text/messages.py).
#pragma once

#include <string>

#include "../../runtime/chat.h"

namespace spc::http {

// Return what the template writes of the checked fields of a body. Throws RequestError.
// tools: a list of those that may be called, null for none.
std::string chat_text(const Json& fields, const ChatTemplates& templates, const Json& tools);

}  // namespace spc::http
