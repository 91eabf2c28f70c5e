// Bodies of forms with files: multipart/form-data (RFC 7578), whole in memory (serving/http/multipart.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spc::http {

// Field of a form. data: of the body that it was read from.
struct FormPart {
  std::string name;
  std::string_view data;

  // Return its value. Throws RequestError unless it is UTF-8.
  std::string text() const;
};

// Return the fields of a form, in order. body: it outlives them, and begins with a line's end, which the caller has put there; content_type:
// the header, with the boundary of the parts. Throws RequestError for a body that is not whole.
std::vector<FormPart> read_form(std::string_view body, const std::string& content_type);

}  // namespace spc::http
