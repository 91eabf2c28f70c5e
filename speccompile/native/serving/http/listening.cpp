// Sockets that listen.
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "../../errors.h"
#include "server.h"

namespace spc::http {
namespace {

constexpr int kBacklog = 2048;

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(Kind::kUsage, "cannot listen on " + where + ": " + reason, "choose another address or port");
}

int listen_unix(const std::string& path) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (path.size() >= sizeof place.sun_path) refuse(path, "the path is longer than " + std::to_string(sizeof place.sun_path - 1) + " bytes");
  std::memcpy(place.sun_path, path.c_str(), path.size() + 1);
  struct stat found{};
  if (stat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());  // left by a server that was killed
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0 || bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 || listen(socket, kBacklog) != 0) {
    const int reason = errno;
    if (socket >= 0) close(socket);
    refuse(path, std::strerror(reason));
  }
  return socket;
}

int listen_address(const ListenAddress& place) {
  const std::string where = place.host + " port " + std::to_string(place.port);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int error = getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &wanted, &found)) refuse(where, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> held(found, freeaddrinfo);
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  if (socket >= 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (socket < 0 || bind(socket, found->ai_addr, found->ai_addrlen) != 0 || listen(socket, kBacklog) != 0) {
    const int reason = errno;
    if (socket >= 0) close(socket);
    refuse(where, std::strerror(reason));
  }
  return socket;
}

int port_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

}  // namespace

Listening::Listening(const ListenAddress& place) : unix_path_(place.unix_path) {
  if (!unix_path_.empty()) {
    socket = listen_unix(unix_path_);
    address = "unix:" + unix_path_;
    return;
  }
  socket = listen_address(place);
  const bool is_v6 = place.host.find(':') != std::string::npos;
  address = "http://" + (is_v6 ? "[" + place.host + "]" : place.host) + ":" + std::to_string(port_of(socket));
}

void Listening::end() {
  if (socket < 0) return;
  close(socket);
  socket = -1;
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
}

}  // namespace spc::http
