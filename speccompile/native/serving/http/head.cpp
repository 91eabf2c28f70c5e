// The line and headers of a request.
#include <strings.h>

#include "../../words.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "channel.h"

namespace spc::http {
namespace {

RequestError malformed(const std::string& what, int status = 400) { return {status, what, "", "connection_refused"}; }

bool is_token(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return is_letter || (c && std::strchr("!#$%&'*+-.^_`|~", c));
}

bool is_all_tokens(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token); }

bool is_visible(char c) { return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7F; }

// Letters of the value of a header: all but controls.
bool is_text(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F); }

// A path without its escapes, as %3A; what is no escape stays.
std::string unquoted(const std::string& path) {
  const auto digit = [&](size_t at) { return at < path.size() ? std::string("0123456789abcdef").find(static_cast<char>(std::tolower(static_cast<unsigned char>(path[at])))) : std::string::npos; };
  std::string found;
  for (size_t at = 0; at < path.size(); ++at) {
    const bool is_escape = path[at] == '%' && digit(at + 1) != std::string::npos && digit(at + 2) != std::string::npos;
    found += is_escape ? static_cast<char>(16 * digit(at + 1) + digit(at + 2)) : path[at];
    if (is_escape) at += 2;
  }
  if (is_utf8(found)) return found;
  throw malformed("the path of the request is no UTF-8");
}

// Return the path of a target, without escapes: servers take the form that names a host as well.
std::string path_of(std::string target) {
  if (target.find('#') != std::string::npos) throw malformed("the target of the request has a fragment");
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (strncasecmp(target.c_str(), scheme.data(), scheme.size()) != 0) continue;
    target.erase(0, std::min(target.find_first_of("/?", scheme.size()), target.size()));
    if (target.empty() || target[0] != '/') target.insert(0, "/");
    break;
  }
  return unquoted(target.substr(0, std::min(target.find('?'), target.size())));
}

void read_line(const std::string& line, RequestHead& head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string::npos || first == last) throw malformed("the first line of the request is not METHOD TARGET VERSION");
  const std::string target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  head.method = line.substr(0, first);
  if (!is_all_tokens(head.method)) throw malformed("the method of the request is no token");
  if (target.empty() || !std::all_of(target.begin(), target.end(), is_visible)) throw malformed("the target of the request has blanks, or letters beyond ASCII");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw malformed("the version of the request is neither HTTP/1.1 nor HTTP/1.0");
  head.is_new = version == "HTTP/1.1";
  head.target = path_of(target);
}

void read_header(const std::string& line, RequestHead& head) {
  const size_t colon = std::min(line.find(':'), line.size());
  std::string name = line.substr(0, colon);
  if (colon == line.size() || !is_all_tokens(name)) throw malformed("a header of the request is not NAME: VALUE");
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string value = trimmed(std::string_view(line).substr(colon + 1), " \t");
  if (!std::all_of(value.begin(), value.end(), is_text)) throw malformed("the header " + name.substr(0, 80) + " has controls in its value");
  head.headers.emplace_back(std::move(name), std::move(value));
}

const std::string* only(const RequestHead& head, const char* name, int status = 400) {
  const auto is_named = [name](const auto& each) { return each.first == name; };
  if (std::count_if(head.headers.begin(), head.headers.end(), is_named) > 1)
    throw malformed(std::string("the request has several headers ") + name, status);
  return head.find(name);
}

void read_length(RequestHead& head) {
  constexpr size_t kMostDigits = 18, kMostTaken = 20;
  const std::string *const length = only(head, "content-length"), *const coding = only(head, "transfer-encoding", 501);
  if (coding && strcasecmp(coding->c_str(), "chunked") != 0) throw malformed("the Transfer-Encoding of the request is not chunked", 501);
  if (coding && (length || !head.is_new)) throw malformed("the request has a Transfer-Encoding beside a Content-Length, or in HTTP/1.0");
  if (coding) head.length.reset();
  if (!length) return;
  const bool is_number = !length->empty() && length->size() <= kMostTaken && length->find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) throw malformed("the Content-Length of the request is no number");
  head.length = std::stoll(length->size() > kMostDigits ? std::string(kMostDigits, '9') : *length);  // beyond any limit
}

// Return whether a word in the lists of all headers Connection is "close".
bool is_last(const RequestHead& head) {
  const auto is_close = [](const std::string& each) { return strcasecmp(trimmed(each, " \t").c_str(), "close") == 0; };
  return std::any_of(head.headers.begin(), head.headers.end(), [&](const auto& header) {
    const std::vector<std::string> words = split(header.first == "connection" ? header.second : "", ',');
    return std::any_of(words.begin(), words.end(), is_close);
  });
}

}  // namespace

const std::string* RequestHead::find(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [name](const auto& each) { return each.first == name; });
  return found == headers.end() ? nullptr : &found->second;
}

void check_trailer(const std::string& line) {
  RequestHead unused;
  read_header(line, unused);
}

RequestHead parse_head(const std::vector<std::string>& lines, const ConnectionLimits& limits) {
  RequestHead head;
  read_line(lines.at(0), head);
  for (size_t number = 1; number < lines.size(); ++number) read_header(lines[number], head);
  if (static_cast<int64_t>(head.headers.size()) > limits.headers)
    throw malformed("the request has more than " + std::to_string(limits.headers) + " headers: the limit headers");
  if (!only(head, "host") && head.is_new) throw malformed("the request has no header Host");
  read_length(head);
  head.is_kept = head.is_new && !is_last(head);  // Python's server keeps no connection of HTTP/1.0 either
  if (const std::string* const expected = head.find("expect")) {
    if (strcasecmp(expected->c_str(), "100-continue") != 0) throw malformed("the header Expect is not 100-continue", 417);
    head.expects_continue = head.is_new;
  }
  return head;
}

}  // namespace spc::http
