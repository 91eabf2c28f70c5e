#include "exit_codes.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <new>

#include "../errors.h"

namespace spc::cli {
namespace {

// The reader of stdout or stderr has closed it.
struct ReaderLeft {};

std::atomic<Level> least{Level::kInfo};

const char* hint_of(int number) {
  switch (number) {
    case ENOSPC: return "free some disk space, or choose an output folder elsewhere";
    case EACCES:
    case EPERM: return "check the permissions, or choose another path";
    case EROFS: return "choose a path that can be written";
    default: return "";
  }
}

int fail(const std::string& message, const std::string& hint, int code) {
  write_stderr("error: " + message);
  if (!hint.empty()) write_stderr("hint: " + hint);
  return code;
}

int defect(const char* what) {
  write_stderr(what);
  write_stderr("this is a defect of speccompile: please report it with the lines above");
  return exit_code(Kind::kDefect);
}

// A shell's exit code of a program that ends by a signal is this and the signal's number.
constexpr int kSignal = 128;

// On whatever thread: nothing is open that has to be closed. A cache's unfinished entries are removed by the next process.
void leave(int number) {
  constexpr char kWords[] = "\ninterrupted; nothing was kept\n";
  if (write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) _exit(kSignal + number);
  _exit(kSignal + number);
}

// Ignored signals stay ignored: `nohup` ignores the end of the terminal, a shell Ctrl-C for background jobs.
void leave_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction wanted{};
    wanted.sa_handler = leave;
    sigaction(number, &wanted, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);
}

// No file that is opened later may take the place of a stream that is closed.
void hold_streams() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) _exit(1);
}

}  // namespace

int run(const std::function<void()>& command) {
  hold_streams();
  leave_on_signals();
  log_to([](Level level, const std::string& line) {
    if (level >= least) write_stderr(line);
  });
  try {
    command();
    return 0;
  } catch (const ReaderLeft&) {
    return kSignal + SIGPIPE;
  } catch (const Error& error) {
    if (error.kind == Kind::kDefect) return defect(error.what());
    return fail(error.message, error.hint, exit_code(error.kind));
  } catch (const std::bad_alloc&) {
    return fail("out of memory", "free some memory, or use a bundle with a smaller cache", exit_code(Kind::kMemory));
  } catch (const std::exception& error) {
    return defect(error.what());
  }
}

void show_from(Level level) { least = level; }

void write_stdout(std::string_view text) {
  try {
    write_all(STDOUT_FILENO, text);
  } catch (const FileError& error) {
    if (error.number == EPIPE) throw ReaderLeft();
    refuse_file("stdout", error);
  }
}

void write_stderr(const std::string& line) {
  try {
    write_all(STDERR_FILENO, line + "\n");
  } catch (const FileError&) {  // stderr is closed as well
  }
}

void refuse_file(const std::string& path, const FileError& error) {
  throw Error(Kind::kFailed, path + ": " + error.reason, hint_of(error.number));
}

}  // namespace spc::cli
