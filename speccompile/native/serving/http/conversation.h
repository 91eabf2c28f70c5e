// Conversations of /v1/chat/completions in the bundle's chat template (serving/http/prompts.py, runtime/text/messages.py).
#pragma once

#include <string>

#include "../../runtime/chat.h"

namespace spc::http {

// Return a checked message as templates know it: its content is a text, and the role developer is system. Throws RequestError.
Json plain_message(const Json& message, const std::string& where);
// Return what the template writes of the checked fields of a body. Throws RequestError.
// tools: a list of those that may be called, null for none; shown: plain messages with pictures, in place of those of the body.
std::string chat_text(const Json& fields, const ChatTemplates& templates, const Json& tools, const Json::List* shown = nullptr);

}  // namespace spc::http
