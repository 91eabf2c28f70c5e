// Conversations of /v1/chat/completions in the bundle's chat template (serving/http/prompts.py, runtime/text/messages.py).
#pragma once

#include <string>

#include "../../runtime/chat.h"

namespace spc::http {

// Return what the template writes of the checked fields of a body. Throws RequestError.
std::string chat_text(const Json& fields, const ChatTemplates& templates);

}  // namespace spc::http
