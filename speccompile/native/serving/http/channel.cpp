#include "channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "../../system.h"

namespace spc::http {
namespace {

constexpr size_t kPart = 1 << 16;  // bytes that are read at once

int milliseconds_until(double deadline) { return static_cast<int>(std::ceil(std::max(0.0, std::min(deadline - wall_seconds(), 1e6)) * 1000)); }

// Wait for an event of a socket. Return false if none comes in time.
bool wait_for_event(int socket, short events, double deadline) {
  for (;;) {
    pollfd asked{socket, events, 0};
    const int found = poll(&asked, 1, milliseconds_until(deadline));
    if (found > 0) return true;
    if (found == 0 && wall_seconds() >= deadline) return false;
    if (found < 0 && errno != EINTR) throw Gone();
  }
}

std::string shown_seconds(double seconds) {
  const std::string text = Json(seconds).dump();
  return text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0 ? text.substr(0, text.size() - 2) : text;
}

RequestError too_large(int64_t most) {
  return {413, "the body is larger than " + std::to_string(most) + " bytes, which is the limit here", "", "body_too_large"};
}

RequestError malformed(const std::string& what) { return {400, what, "", "connection_refused"}; }

bool is_blank(char c) { return static_cast<unsigned char>(c) <= 0x20 && c != '\r' && c != '\n'; }

int64_t chunk_size(const std::string& line) {
  constexpr size_t kMostDigits = 8, kMostZeros = 12;
  const size_t digits = std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
  const size_t zeros = digits ? std::min(line.find_first_not_of('0'), digits - 1) : 0;
  const size_t behind = std::min(line.find_first_not_of(" \t", digits), line.size());
  const bool has_end = behind == line.size() || line[behind] == ';';
  if (!digits || zeros > kMostZeros || digits - zeros > kMostDigits || !has_end) throw malformed("the size of a chunk is no number of one to eight hexadecimal digits");
  return std::stoll(line.substr(0, digits), nullptr, 16);
}

}  // namespace

bool Channel::wait_for_request(double seconds) {
  if (at_ < held_.size()) return true;
  if (!wait_for_event(socket_, POLLIN, wall_seconds() + seconds)) return false;
  char first;
  return recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Channel::fill(double deadline, const char* part, double seconds) {
  if (!wait_for_event(socket_, POLLIN, deadline))
    throw RequestError(408, std::string("the ") + part + " of a request did not come within " + shown_seconds(seconds) + " seconds: the limit " +
                                (part == std::string("body") ? "body_seconds" : "header_seconds"),
                       "", "timeout");
  char read[kPart];
  const ssize_t count = recv(socket_, read, sizeof read, 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) throw Gone();
  if (at_ == held_.size() || at_ >= kPart) {
    held_.erase(0, at_);
    at_ = 0;
  }
  held_.append(read, static_cast<size_t>(count));
}

// Return the next line without its end. room: bytes that lines may still have, less this one's afterwards.
std::string Channel::line(double deadline, const char* part, double seconds, int64_t& room) {
  for (size_t seen = 0;;) {
    const size_t end = held_.find('\n', at_ + seen);
    const size_t size = (end == std::string::npos ? held_.size() : end + 1) - at_;
    if (static_cast<int64_t>(size) > room)
      throw RequestError(431, "the line and headers of a request take more than " + std::to_string(limits_.header_bytes) + " bytes: the limit header_bytes", "",
                         "connection_refused");
    if (end != std::string::npos) {
      if (size < 2 || held_[end - 1] != '\r') throw malformed("a line of the request does not end with CR LF");
      std::string found = held_.substr(at_, size - 2);
      at_ += size;
      room -= static_cast<int64_t>(size);
      return found;
    }
    seen = size;
    fill(deadline, part, seconds);
  }
}

RequestHead Channel::read_head(double seconds) {
  const double deadline = wall_seconds() + seconds;
  int64_t room = limits_.header_bytes;
  std::vector<std::string> lines;
  while (held_.size() == at_) fill(deadline, "headers", seconds);
  constexpr char kTlsHandshake = 0x16;  // which has no line, and its client would wait for the end of the time for headers
  if (held_[at_] == kTlsHandshake) throw malformed("the request is no HTTP: TLS is left to a proxy in front of this server");
  if (is_blank(held_[at_])) throw malformed("the first line of the request is not METHOD TARGET VERSION");
  while (true) {
    std::string next = line(deadline, "headers", seconds, room);
    if (next.empty() && lines.empty()) continue;  // some clients send an empty line behind a body
    if (next.empty()) break;
    lines.push_back(std::move(next));
  }
  return parse_head(lines, limits_);
}

std::string Channel::read_body(const RequestHead& head, int64_t most) {
  if (head.length && *head.length > most) throw too_large(most);
  const double deadline = wall_seconds() + limits_.body_seconds;
  if (head.expects_continue && (!head.length || *head.length > 0)) write("HTTP/1.1 100 Continue\r\n\r\n");
  return head.length ? take(static_cast<size_t>(*head.length), deadline) : read_chunks(deadline, most);
}

std::string Channel::read_chunks(double deadline, int64_t most) {
  std::string body;
  int64_t room = limits_.header_bytes;
  while (true) {
    int64_t own = limits_.header_bytes;
    const int64_t size = chunk_size(line(deadline, "body", limits_.body_seconds, own));
    if (static_cast<int64_t>(body.size()) + size > most) throw too_large(most);
    if (size == 0) break;
    body += take(static_cast<size_t>(size), deadline);
    if (take(2, deadline) != "\r\n") throw malformed("a chunk is longer than its size says");
  }
  while (true) {  // trailers say nothing here
    const std::string trailer = line(deadline, "body", limits_.body_seconds, room);
    if (trailer.empty()) return body;
    check_trailer(trailer);
  }
}

std::string Channel::take(size_t count, double deadline) {
  while (held_.size() - at_ < count) fill(deadline, "body", limits_.body_seconds);
  std::string found = held_.substr(at_, count);
  at_ += count;
  return found;
}

void Channel::write(std::string_view data) {
  const double deadline = wall_seconds() + limits_.body_seconds;
  while (!data.empty()) {
    const ssize_t count = send(socket_, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      data.remove_prefix(static_cast<size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_for_event(socket_, POLLOUT, deadline)) throw Gone();
  }
}

void Channel::wait_for(int descriptor) {
  // what a client sends while it waits for an answer is the next request: only its end counts
  pollfd asked[] = {{descriptor, POLLIN, 0}, {socket_, POLLRDHUP, 0}};
  for (;;) {
    if (poll(asked, 2, -1) < 0) {
      if (errno == EINTR) continue;
      throw Gone();
    }
    if (asked[0].revents) return;
    if (asked[1].revents) throw Gone();
  }
}

}  // namespace spc::http
