// Writing of answers.
#include <cstdio>

#include "app.h"

namespace spc::http {
namespace {

constexpr const char* kJson = "application/json";

const char* phrase_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Error";
  }
}

}  // namespace

std::string Exchange::read_body(int64_t most) {
  has_begun_ = true;
  std::string body = channel_.read_body(head, most);
  has_read_ = true;
  on_whole_();
  return body;
}

bool Exchange::finish() {
  if (!is_kept()) return false;
  try {
    if (!has_read_) channel_.read_body(head, kMostSkipped);
    return true;
  } catch (const RequestError&) {  // an answer has been given
    return false;
  }
}

std::string Exchange::top(int status, const std::string& type, const Headers& more) {
  status_ = status;
  std::string found = "HTTP/1.1 " + std::to_string(status) + " " + phrase_of(status) + "\r\n";
  if (!type.empty()) found += "Content-Type: " + type + "\r\n";
  for (const Headers* const list : {static_cast<const Headers*>(&headers), &more})
    for (const auto& [name, value] : *list) found += name + ": " + value + "\r\n";
  if (!is_kept()) found += "Connection: close\r\n";
  return found;
}

void Exchange::answer(int status, const std::string& type, const std::string& body, const Headers& more) {
  std::string begin = top(status, type, more);
  if (status != 204 && status != 304) begin += "Content-Length: " + std::to_string(body.size()) + "\r\n";  // those have no body
  channel_.write(begin + "\r\n" + (head.method == "HEAD" ? "" : body));
}

void Exchange::answer(int status, const Json& body, const Headers& more) { answer(status, kJson, body.dump(Json::kCompact), more); }

void Exchange::begin_events() {
  std::string begin = top(200, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  if (head.is_new) begin += "Transfer-Encoding: chunked\r\n";
  channel_.write(begin + "\r\n");
}

void Exchange::send_event(const Json& data) { send_part("data: " + data.dump(Json::kCompact) + "\n\n"); }

void Exchange::end_events() {
  send_part("data: [DONE]\n\n");
  if (head.is_new) channel_.write("0\r\n\r\n");
}

void Exchange::send_part(const std::string& part) {
  if (!head.is_new) return channel_.write(part);
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", part.size());
  channel_.write(size + part + "\r\n");
}

}  // namespace spc::http
