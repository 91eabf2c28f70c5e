#include "connections.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "../../system.h"

namespace spc::http {
namespace {

constexpr int64_t kFewest = 8;
constexpr int64_t kMostEnding = 4 * kReserve;  // connections beyond the limit: of the reserve, and those that are told to end

// The most connections that the descriptors of this process allow.
int64_t default_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return kMostConnections;
  return std::max(kFewest, std::min(kMostConnections, static_cast<int64_t>(files.rlim_cur) - kSpareDescriptors));
}

// Shut the socket down: its thread then fails to read or write, and closes it.
void end(const Connections::Entry& connection) { shutdown(connection.socket, SHUT_RDWR); }

}  // namespace

Connections::Connections(const ConnectionLimits& limits)
    : header_seconds_(limits.header_seconds),
      most_(limits.connections.value_or(default_connections())),
      most_of_address_(limits.address_connections.value_or(std::max<int64_t>(1, most_ / 2))) {}

std::optional<Connections::Place> Connections::admit(int socket, const std::string& address) {
  const std::lock_guard<std::mutex> held(mutex_);
  if (static_cast<int64_t>(open_.size()) >= most_ + kMostEnding) return std::nullopt;
  if (!has_room(address)) end_idle(address);
  const bool is_reserve = !has_room(address);
  if (is_reserve && std::count_if(open_.begin(), open_.end(), [](const Entry& each) { return each.is_reserve; }) >= kReserve)
    end(*std::find_if(open_.begin(), open_.end(), [](const Entry& each) { return each.is_reserve; }));
  return open_.insert(open_.end(), {socket, address, is_reserve, State::kNew, wall_seconds()});
}

bool Connections::enter(Place connection, State state) {
  const std::lock_guard<std::mutex> held(mutex_);
  connection->state = state;
  return !draining_ || state == State::kAnswering;
}

void Connections::release(Place connection) {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    close(connection->socket);
    open_.erase(connection);
  }
  changed_.notify_all();
}

void Connections::drain() {
  const std::lock_guard<std::mutex> held(mutex_);
  draining_ = true;
  for (const Entry& each : open_)
    if (each.state != State::kAnswering) end(each);
}

bool Connections::is_draining() const {
  const std::lock_guard<std::mutex> held(mutex_);
  return draining_;
}

bool Connections::wait_for_end(double seconds) {
  std::unique_lock<std::mutex> held(mutex_);
  return changed_.wait_for(held, std::chrono::duration<double>(seconds), [this] { return open_.empty(); });
}

void Connections::abort() {
  const std::lock_guard<std::mutex> held(mutex_);
  for (const Entry& each : open_) end(each);
}

// Return whether one more connection fits. Connections of the reserve, and those that were told to end, do not count.
bool Connections::has_room(const std::string& address) const {
  int64_t all = 0, of_address = 0;
  for (const Entry& each : open_) {
    if (each.is_reserve) continue;
    ++all;
    of_address += !address.empty() && each.address == address;
  }
  return all < most_ && of_address < most_of_address_;
}

// Return whether a connection is between two requests, or had its time for the headers of the first, and nothing has come that its thread
// will read.
bool Connections::is_idle(const Entry& connection) const {
  const bool waits = connection.state == State::kIdle || (connection.state == State::kNew && wall_seconds() - connection.begun > header_seconds_);
  char first;
  return waits && recv(connection.socket, &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

// End the oldest connection that is idle, of the same address if that has too many. It counts as reserve until it is gone.
void Connections::end_idle(const std::string& address) {
  int64_t all = std::count_if(open_.begin(), open_.end(), [](const Entry& each) { return !each.is_reserve; });
  for (Entry& each : open_) {
    if (each.is_reserve || !is_idle(each) || (all < most_ && each.address != address)) continue;
    end(each);
    each.is_reserve = true;
    return;
  }
}

}  // namespace spc::http
