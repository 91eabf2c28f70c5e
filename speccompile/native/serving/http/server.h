// Server process: its socket, its threads, its signals, and its end (serving/http/run.py).
#pragma once

#include <functional>
#include <string>

#include "app.h"

namespace spc::http {

// Address on which a server listens: of the machine, or a Unix socket.
struct ListenAddress {
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string unix_path;
};

// A socket that listens. What it was made for is removed with it.
class Listening {
 public:
  // Throws Error(kUsage) if it cannot listen.
  explicit Listening(const ListenAddress& place);
  ~Listening() { end(); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  // Take no more connections.
  void end();

  int socket = -1;
  std::string address;  // as a client writes it

 private:
  std::string unix_path_;
};

// Block the signals that end a server, before any thread begins: `serve` waits for them.
void block_signals();

// Serve until SIGTERM or SIGINT. Then finish the present requests, for at most `grace` seconds; a second signal ends at once. `load`
// opens the model in another thread; what it throws ends the server, and is thrown.
void serve(const std::shared_ptr<ServedModel>& model, Settings settings, Listening& listening, const std::function<void()>& load, double grace, const ConnectionLimits& limits);

}  // namespace spc::http
