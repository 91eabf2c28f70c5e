// Open connections of a server, and their limits (serving/http/connection_limits.py).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <condition_variable>
#include <optional>
#include <string>

#include "tables.h"

namespace spc::http {

// header_bytes: of a request's line and headers, and of the trailers of its body; headers: their number; header_seconds: from a
// request's first byte until they have come; body_seconds: until the body has come, and for which a client may not read what was sent. connections: open at once,
// nullopt for as many as file descriptors allow; address_connections: of one address, nullopt for half of those.
struct ConnectionLimits {
  int64_t header_bytes = kDefaultHeaderBytes, headers = kDefaultHeaders;
  double header_seconds = kDefaultHeaderSeconds, body_seconds = kDefaultBodySeconds;
  std::optional<int64_t> connections, address_connections;
};

// Connections beyond the limits are of the reserve, which monitoring always gets into: a new one takes the place of the oldest.
class Connections {
 public:
  // One connection. kNew: no request has begun; kIdle: between two requests; kReading: its request has not come whole; kAnswering.
  enum class State { kNew, kIdle, kReading, kAnswering };
  struct Entry {
    int socket;
    std::string address;
    bool is_reserve;
    State state;
    double begun;  // time of its beginning
  };
  using Place = std::list<Entry>::iterator;

  explicit Connections(const ConnectionLimits& limits);
  // Take a new connection; nullopt where too many wait for their end. address: of the client, "" for none.
  std::optional<Place> admit(int socket, const std::string& address);
  // Say what a connection does now. Return false if it has to end first, because the server does.
  bool enter(Place connection, State state);
  // Forget a connection whose thread ends, and close its socket.
  void release(Place connection);
  // From now on nothing is read: connections that answer nothing end at once, the others with their answer.
  void drain();
  bool is_draining() const;
  // Wait until there is none, for at most `seconds`. Return whether there is none.
  bool wait_for_end(double seconds);
  // End all at once.
  void abort();

 private:
  bool has_room(const std::string& address) const;
  bool is_idle(const Entry& connection) const;
  void end_idle(const std::string& address);

  const double header_seconds_;
  const int64_t most_, most_of_address_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> open_;  // the oldest first
  bool draining_ = false;
};

}  // namespace spc::http
