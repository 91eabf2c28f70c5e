#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <exception>
#include <memory>
#include <thread>

#include "../../progress.h"
#include "../../system.h"

namespace spc::http {
namespace {

constexpr double kReserveSeconds = 2;  // for a connection of the reserve to begin its request, and for the headers
constexpr double kLastSeconds = 1;     // for connections that are still open when all requests have ended
constexpr useconds_t kLastWords = 500'000;  // until clients have read, after a second signal, that their requests are not finished
constexpr double kLinger = 0.5;        // for what a refused client still sends: closed before, it might not see why
constexpr size_t kStack = 2 << 20;     // of a thread: JSON is nested up to 500 deep

sigset_t ending_signals() {
  sigset_t found;
  sigemptyset(&found);
  sigaddset(&found, SIGTERM);
  sigaddset(&found, SIGINT);
  return found;
}

bool is_reserved(const std::string& target) {
  for (const char* const path : kReservedPaths)
    if (target == path) return true;
  return false;
}

struct Shared {
  App app;
  const ConnectionLimits limits;
  Connections connections;
  const bool access_log;

  Shared(std::shared_ptr<ServedModel> model, const Settings& settings, const ConnectionLimits& limits)
      : app(std::move(model), settings), limits(limits), connections(this->limits), access_log(settings.access_log) {}
};

// One connection, in a thread of its own.
class Connection {
 public:
  Connection(std::shared_ptr<Shared> shared, Connections::Place place, std::string address)
      : shared_(std::move(shared)), place_(place), is_reserve_(place->is_reserve), socket_(place->socket), address_(std::move(address)), channel_(socket_, shared_->limits) {}

  void run() {
    try {
      while (answer_next()) continue;
    } catch (const Gone&) {
    } catch (const std::exception& error) {  // there is no memory even to say so
      warn(std::string("a connection ended: ") + error.what());
    }
    shared_->connections.release(place_);
  }

 private:
  // Return whether another request may follow.
  bool answer_next() {
    const double most = is_reserve_ ? kReserveSeconds : HUGE_VAL;
    if (!channel_.wait_for_request(std::min(kDefaultIdleSeconds, most))) return false;
    if (!shared_->connections.enter(place_, Connections::State::kReading)) return false;
    RequestHead head;
    try {
      head = channel_.read_head(std::min(shared_->limits.header_seconds, most));
      if (is_reserve_ && !is_reserved(head.target))
        throw RequestError(503, "too many connections are open: try again later", "", "connection_refused").of_kind(kUnavailable);
    } catch (const RequestError& error) {
      return refuse(error);
    }
    return answer(head);
  }

  bool answer(const RequestHead& head) {
    if (head.length && *head.length == 0 && !shared_->connections.enter(place_, Connections::State::kAnswering)) return false;
    Exchange exchange(channel_, head, !head.is_kept || is_reserve_ || shared_->connections.is_draining(),
                      [this] { shared_->connections.enter(place_, Connections::State::kAnswering); });
    shared_->app.handle(exchange);
    log(head, exchange.status());
    if (!exchange.finish()) {
      linger();
      return false;
    }
    return shared_->connections.enter(place_, Connections::State::kIdle);
  }

  bool refuse(const RequestError& error) {
    RequestHead head;
    head.length.reset();  // nothing is known of a body
    Exchange exchange(channel_, head, true, [] {});
    exchange.answer(error.status, error.to_json(), error.headers);
    linger();
    return false;
  }

  // Let what the client still sends come, so that the system does not throw our answer away with it.
  void linger() {
    shutdown(socket_, SHUT_WR);
    const double deadline = wall_seconds() + kLinger;
    char read[4096];
    for (double left = kLinger; left > 0; left = deadline - wall_seconds()) {
      pollfd asked{socket_, POLLIN, 0};
      if (poll(&asked, 1, static_cast<int>(left * 1000) + 1) <= 0 || recv(socket_, read, sizeof read, MSG_DONTWAIT) <= 0) return;
    }
  }

  void log(const RequestHead& head, int status) const {
    if (!shared_->access_log) return;
    char when[32];
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &local));
    warn(std::string(when) + " " + address_ + " - \"" + head.method + " " + head.target + " " + (head.is_new ? "HTTP/1.1" : "HTTP/1.0") + "\" " + std::to_string(status));
  }

  const std::shared_ptr<Shared> shared_;
  const Connections::Place place_;
  const bool is_reserve_;
  const int socket_;
  const std::string address_;
  Channel channel_;
};

void* run_connection(void* given) {
  const std::unique_ptr<Connection> connection(static_cast<Connection*>(given));
  connection->run();
  return nullptr;
}

std::string address_of(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof text);
  if (from.ss_family == AF_INET6) inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, text, sizeof text);
  return text;
}

void begin(const std::shared_ptr<Shared>& shared, int socket, const std::string& address) {
  const std::optional<Connections::Place> place = shared->connections.admit(socket, address);
  if (!place) {
    close(socket);
    return;
  }
  auto connection = std::make_unique<Connection>(shared, *place, address);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, run_connection, connection.get()) == 0)
    connection.release();  // the thread's
  else
    shared->connections.release(*place);
  pthread_attr_destroy(&attributes);
}

// Take connections until `stop` can be read.
void accept_all(const std::shared_ptr<Shared>& shared, int listening, int stop) {
  for (;;) {
    pollfd asked[] = {{listening, POLLIN, 0}, {stop, POLLIN, 0}};
    if (poll(asked, 2, -1) < 0 && errno != EINTR) return;
    if (asked[1].revents) return;
    if (!asked[0].revents) continue;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int socket = accept4(listening, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
    if (socket >= 0) {
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // a Unix socket has none, and needs none
      begin(shared, socket, address_of(from));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      usleep(10'000);  // until a connection has ended
    }
  }
}

}  // namespace

void block_signals() {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void serve(const std::shared_ptr<ServedModel>& model, Settings settings, Listening& listening, const std::function<void()>& load, double grace, const ConnectionLimits& limits) {
  const auto shared = std::make_shared<Shared>(model, settings, limits);
  const int stop = eventfd(0, EFD_CLOEXEC);
  std::exception_ptr failure;
  std::thread accepting([&] { accept_all(shared, listening.socket, stop); });
  std::thread loading([&] {
    try {
      load();
    } catch (...) {
      failure = std::current_exception();
      kill(getpid(), SIGTERM);
    }
  });
  const sigset_t signals = ending_signals();
  int number = 0;
  sigwait(&signals, &number);
  eventfd_write(stop, 1);
  accepting.join();
  listening.end();
  close(stop);
  std::thread([signals, model] {  // a second signal does not wait
    int next = 0;
    sigwait(&signals, &next);
    model->drain(true);
    usleep(kLastWords);
    _exit(0);
  }).detach();
  if (!failure) log(Level::kInfo, "finishing what was asked; another signal ends at once");
  model->drain();
  shared->connections.drain();
  loading.join();
  if (!failure) model->close(grace);
  if (!shared->connections.wait_for_end(failure ? 0 : kLastSeconds)) {
    shared->connections.abort();
    shared->connections.wait_for_end(kLastSeconds);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace spc::http
