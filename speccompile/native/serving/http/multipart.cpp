#include "multipart.h"

#include <strings.h>

#include <algorithm>
#include <cstring>

#include "../../json.h"
#include "../../text/unicode.h"
#include "errors.h"
#include "tables.h"

namespace spc::http {
namespace {

constexpr size_t kLongestBoundary = 70;
constexpr const char* kBlanks = " \t\r\n\f\v";

[[noreturn]] void refuse(const std::string& problem) { throw RequestError(400, problem, "", "invalid_form"); }

bool begins(std::string_view text, const char* word) { return text.size() >= std::strlen(word) && strncasecmp(text.data(), word, std::strlen(word)) == 0; }

// Return the position after `name`=, which follows a semicolon from `from` on; npos if there is none.
size_t find_parameter(std::string_view text, const char* name, size_t from) {
  for (size_t at = text.find(';', from); at != std::string_view::npos; at = text.find(';', at + 1)) {
    const size_t word = std::min(text.find_first_not_of(kBlanks, at + 1), text.size());
    if (begins(text.substr(word), name)) return word + std::strlen(name);
  }
  return std::string_view::npos;
}

std::string boundary_of(std::string_view type) {
  for (size_t at = 0; (at = find_parameter(type, "boundary=", at)) != std::string_view::npos;) {
    const bool is_quoted = at < type.size() && type[at] == '"';
    const size_t start = at + (is_quoted ? 1 : 0), end = std::min(type.find_first_of(is_quoted ? "\"" : "; \t\r\n\f\v\"", start), type.size());
    const std::string_view found = type.substr(start, end - start);
    if (is_quoted ? end < type.size() && !found.empty() && found.size() <= kLongestBoundary : !found.empty()) return std::string(found.substr(0, kLongestBoundary));
  }
  refuse(std::string("received a Content-Type without a boundary, expected one of ") + kFormMedia);
}

// The value of a parameter in quotes, in a line; false where it has none.
bool quoted(std::string_view line, const char* name, std::string& value) {
  for (size_t at = 0; (at = find_parameter(line, name, at)) != std::string_view::npos;) {
    if (at == line.size() || line[at] != '"') continue;
    std::string found;
    size_t place = at + 1;
    for (; place < line.size() && line[place] != '"'; ++place) {
      if (line[place] == '\\' && place + 1 < line.size()) {
        if (line[place + 1] != '"') found += '\\';
        ++place;
      }
      found += line[place];
    }
    if (place < line.size()) {
      value = found;
      return true;
    }
  }
  return false;
}

FormPart part_of(std::string_view piece) {
  piece.remove_prefix(std::min(piece.find_first_not_of(" \t"), piece.size()));
  const size_t end = piece.find("\r\n\r\n");
  const std::string_view head = piece.substr(0, end);
  std::string name;
  bool is_named = false;
  for (size_t at = 0; at <= head.size();) {
    const size_t stop = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, stop - at);
    at = stop + 2;
    if (!begins(line, "content-disposition:")) continue;
    is_named = quoted(line, "name=", name);
    break;
  }
  if (end == std::string_view::npos || !is_named) refuse("a part of the form has no name");
  return {unicode::lossy(name), piece.substr(end + 4)};
}

}  // namespace

std::string FormPart::text() const {
  if (!is_utf8(data)) throw RequestError(400, name + ": received bytes that are not UTF-8", name);
  return std::string(data);
}

std::vector<FormPart> read_form(std::string_view body, const std::string& content_type) {
  const std::string mark = "\r\n--" + boundary_of(content_type);
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at <= body.size();) {
    const size_t end = std::min(body.find(mark, at), body.size());
    pieces.push_back(body.substr(at, end - at));
    if (pieces.size() > static_cast<size_t>(kMostFormFields) + 2) refuse("the form has more than " + std::to_string(kMostFormFields) + " fields");
    if (end == body.size()) break;
    at = end + mark.size();
  }
  if (pieces.size() < 2 || pieces.back().substr(0, 2) != "--") refuse("the form does not end with its boundary: the body is not whole");
  std::vector<FormPart> parts;
  for (size_t i = 1; i + 1 < pieces.size(); ++i) parts.push_back(part_of(pieces[i]));
  return parts;
}

}  // namespace spc::http
