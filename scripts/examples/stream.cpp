// A service in small: writes what a bundle makes of each prompt to stdout, as it comes.
//
//   stream BUNDLE [PROMPT...]      without prompts each line of stdin is one; control-C cancels
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <speccompile.hpp>

namespace {

sigset_t block(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// A signal handler may do next to nothing; a thread that waits for the signal may cancel.
struct Interrupts {
  Interrupts(const sigset_t &set, const speccompile::Session &session) : waiter([this, set, &session] {
    for (int received = 0; sigwait(&set, &received) == 0 && !over;) busy ? session.cancel() : std::_Exit(130);
  }) {}
  ~Interrupts() {
    over = true;
    pthread_kill(waiter.native_handle(), SIGINT);
    waiter.join();
  }
  std::atomic<bool> busy{false}, over{false};
  std::thread waiter;  // the last: it reads the others
};

}  // namespace

int main(int argc, char **argv) try {
  if (argc < 2) throw std::invalid_argument("usage: stream BUNDLE [PROMPT...]");
  const sigset_t interrupt = block(SIGINT);  // before a bundle starts threads, which would get the signal
  const speccompile::Bundle bundle(argv[1]);
  speccompile::Session session(bundle);
  Interrupts interrupts(interrupt, session);
  std::string line;
  for (int next = 2; argc > 2 ? next < argc : bool(std::getline(std::cin, line)); ++next) {
    interrupts.busy = true;
    const auto request = speccompile::Request().prompt(argc > 2 ? argv[next] : line).set("max_new_tokens", 64);
    session.run(request, [](std::string_view piece) { std::cout << piece << std::flush; });
    interrupts.busy = false;
    std::cout << std::endl;
  }
} catch (const speccompile::Error &error) {
  std::cerr << "error: " << error.what() << "\n" << (error.hint.empty() ? "" : "hint: " + error.hint + "\n");
  return error.kind == SPC_CANCELLED ? 130 : error.exit_code;
} catch (const std::invalid_argument &usage) {
  return (std::cerr << usage.what() << "\n", 2);
}
