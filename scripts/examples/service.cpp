// A service with one queue: every line of stdin is a request, which a scheduler decodes beside the others. Their texts come in the
// order of the lines, each when it is whole.
//
//   service BUNDLE < PROMPTS
#include <future>
#include <iostream>
#include <queue>
#include <string>
#include <vector>

#include <speccompile_scheduler.hpp>

namespace {

using Answer = std::future<std::vector<speccompile::Result>>;
constexpr size_t kWaiting = 32;  // lines that are read before the first of them is answered

void write(Answer answer) {
  for (const speccompile::Result &result : answer.get()) std::cout << result.json() << std::endl;
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc != 2) return (std::cerr << "usage: service BUNDLE\n", 2);
  const speccompile::Bundle bundle(argv[1]);
  const speccompile::Scheduler scheduler(bundle);
  std::queue<Answer> waiting;
  for (std::string line; std::getline(std::cin, line);) {
    waiting.push(scheduler.async(speccompile::Request().prompt(line).set("max_new_tokens", 64)));
    if (waiting.size() < kWaiting) continue;
    write(std::move(waiting.front()));
    waiting.pop();
  }
  for (; !waiting.empty(); waiting.pop()) write(std::move(waiting.front()));
} catch (const speccompile::Error &error) {
  std::cerr << "error: " << error.what() << "\n" << (error.hint.empty() ? "" : "hint: " + error.hint + "\n");
  return error.exit_code;
}
