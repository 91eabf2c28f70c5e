// One connection: HTTP/1.1 requests, read with limits of size and time, and their answers.
//
// Nothing is read leniently that proxies read in several ways: lines end with CR LF, a body has one length, no header is folded.
//
// By hand, because cpp-httplib and Boost.Beast took 7 and 11 of 39 malformed or ambiguous requests, and kept 1500 clients that send
// a head byte by byte. Figures: docs/explanation/decisions/0009-formats-by-hand.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "connections.h"
#include "errors.h"

namespace spc::http {

// The client has left, or the connection is to end: nothing more can be read or written.
struct Gone {};

// A request's line and headers. target: without its query; names of headers are in lower case. length: of the body, nullopt for
// one in chunks.
struct RequestHead {
  std::string method, target;
  bool is_new = true;  // HTTP/1.1
  Headers headers;
  bool is_kept = true;  // another request may follow
  bool expects_continue = false;
  std::optional<int64_t> length = 0;

  const std::string* find(std::string_view name) const;
};

// Return the head in some lines, each without its end. Throws RequestError for invalid HTTP, and beyond a limit.
RequestHead parse_head(const std::vector<std::string>& lines, const ConnectionLimits& limits);

// Throw RequestError for a line behind the chunks of a body that is no header.
void check_trailer(const std::string& line);

// Bytes of one socket. Throws Gone, or RequestError with the status of a limit.
class Channel {
 public:
  Channel(int socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}

  // Wait until the next request begins, for at most `seconds`. Return false if none does.
  bool wait_for_request(double seconds);
  // Read a request's line and headers, for at most `seconds`.
  RequestHead read_head(double seconds);
  // Read the body of the request, of at most `most` bytes. Called once, or not at all.
  std::string read_body(const RequestHead& head, int64_t most);
  // Write all, unless the client does not read for too long.
  void write(std::string_view data);
  // Wait until there is something to read from `descriptor`. Throws Gone if the client leaves before.
  void wait_for(int descriptor);

 private:
  void fill(double deadline, const char* part, double seconds);
  std::string line(double deadline, const char* part, double seconds, int64_t& room);
  std::string read_chunks(double deadline, int64_t most);
  std::string take(size_t count, double deadline);

  const int socket_;
  const ConnectionLimits& limits_;
  std::string held_;  // bytes that have come, from `at_` on not used
  size_t at_ = 0;
};

}  // namespace spc::http
