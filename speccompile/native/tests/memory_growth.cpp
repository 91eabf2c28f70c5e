// Bundles opened and closed, and sessions started, again and again: nothing of the process grows.
//
//   test_growth BUNDLE LIBRARY_OF_ONNXRUNTIME [cycles]
#include <dirent.h>
#include <malloc.h>

#include <fstream>

#include "asked.h"

namespace speccompile {
namespace {

// Resources of this process, which must not grow.
struct Held {
  long long resident = 0, threads = 0, files = 0;  // of memory in KiB
};

Held held() {
  malloc_trim(0);
  Held found;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) found.resident = std::stoll(line.substr(6));
    if (line.rfind("Threads:", 0) == 0) found.threads = std::stoll(line.substr(8));
  }
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder)) ++found.files;
  closedir(folder);
  return found;
}

// Runs `cycle` so often. Between a tenth of the cycles and the last one, memory may grow by 1 MiB, which the allocator's pools
// take until they have their size (most of it in the first hundreds of cycles), and by 1 KiB a cycle. What a cycle holds is a
// hundred times as much: whatever of it stayed, the manifest's JSON, the buffers, a session of ONNX Runtime, would show.
template <class F>
void test_growth(const char* what, int cycles, F cycle) {
  Held first;
  const int warm = cycles / 10;
  for (int i = 0; i < cycles; ++i) {
    if (i == warm) first = held();
    cycle();
  }
  const Held last = held();
  std::printf("%s: %d cycles, resident %lld KiB after %d, %lld KiB at the end\n", what, cycles, first.resident, warm, last.resident);
  CHECK(last.threads <= first.threads, "%s: threads grow from %lld to %lld", what, first.threads, last.threads);
  CHECK(last.files <= first.files, "%s: open files grow from %lld to %lld", what, first.files, last.files);
#if !defined(IS_SANITIZED)  // which keep for a while what was freed
  const long long more = last.resident - first.resident, most = 1024 + (cycles - warm);
  CHECK(more <= most, "%s: %lld KiB more, expected at most %lld", what, more, most);
#endif
}

void test_growth(const Arguments& arguments, int cycles) {
  uint64_t seed = 0;
  test_growth("open, generate, close", cycles, [&] {
    const Bundle bundle = arguments.open(kSeveral);
    Session session(bundle);
    generate(session, asked_of(bundle, ++seed % 7));
  });
  const Bundle bundle = arguments.open();
  Session session(bundle);
  test_growth("start, step, cancel", cycles, [&] {
    const Asked asked = asked_of(bundle, ++seed % 7);
    session.start(asked.request());
    session.step();
    session.cancel();
    int done = 0;
    spc_error_free(spc_session_step(session.get(), &done));
    generate(session, asked);
  });
}

}  // namespace
}  // namespace speccompile

int main(int count, char** words) {
  speccompile::test_growth(speccompile::arguments_of(count, words), count > 3 ? std::atoi(words[3]) : 100);
  return 0;
}
