// Fields of requests: supported ones, known ones that are refused, and unknown ones, which are ignored (serving/http/fields.py).
#pragma once

#include "../../json.h"

namespace spc::http {

// Return the fields of a body that are set and known. Throws RequestError for an invalid field, or one that this server does not
// support.
Json validate_chat(const Json& body);
Json validate_completion(const Json& body);
Json validate_tokenize(const Json& body);
Json validate_detokenize(const Json& body);

}  // namespace spc::http
