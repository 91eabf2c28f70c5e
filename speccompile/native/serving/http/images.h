// Pictures in the messages of a request: parts of type image_url with data: URLs (serving/http/images.py). Nothing is fetched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../images/pixels.h"
#include "../../runtime/bundle.h"

namespace spc::http {

// Messages with pictures. rest: the body without them, which is checked like any other; pictures: in their order.
struct ShownMessages {
  Json rest;
  std::vector<images::GivenPicture> pictures;
};

// Return the messages of a body with pictures; none of a body without, and for a bundle that sees none. Throws RequestError for a picture
// that is not taken.
std::optional<ShownMessages> shown_messages(const Json& body, const Bundle& bundle);

// Return the tokens of a conversation with pictures in the bundle's chat template. body: the whole one; fields: of its checked rest;
// tools: see `chat_text`; fits: see `chat_prompt`. The pictures are known to the bundle from now on. Throws RequestError.
TokenIds shown_prompt(const Json& body, const Json& fields, ShownMessages& shown, const Bundle& bundle, const Json& tools, bool fits = true);

}  // namespace spc::http
