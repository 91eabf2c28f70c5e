// The threads that operators share their work with: every part once, from several callers at once, with workers awake and asleep;
// and when sharing is given up, by speeds in closed form.
#include "../operators/thread_pool.h"

#include <chrono>
#include <numeric>

#include "../operators/sharing.h"
#include "check.h"

namespace {

using namespace speccompile;

struct Parts {
  std::vector<int64_t> done;

  static void run(void* self, int64_t part) noexcept { static_cast<Parts*>(self)->done[static_cast<size_t>(part)] += part + 1; }
};

// Calls of 1, 2, .. parts. What they write is not atomic: a thread that came back early, or late, would be seen.
void call_often(ThreadPools& pools, int calls, std::chrono::microseconds between) {
  for (int i = 0; i < calls; ++i) {
    Parts parts{std::vector<int64_t>(static_cast<size_t>(1 + i % 70))};
    const auto count = static_cast<int64_t>(parts.done.size());
    ThreadPools::Borrowed(pools)->run(Parts::run, &parts, count);
    const int64_t sum = std::accumulate(parts.done.begin(), parts.done.end(), int64_t{0});
    CHECK(sum == count * (count + 1) / 2, "call %d: %lld", i, static_cast<long long>(sum));
    if (between.count()) std::this_thread::sleep_for(between);
  }
}

void test_every_part_runs_once() {
  for (const int threads : {1, 2, 4}) {
    const std::shared_ptr<ThreadPools> pools = ThreadPools::of(threads);
    CHECK(ThreadPools::of(threads) == pools, "%d threads", threads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) callers.emplace_back([&] { call_often(*pools, 2000, {}); });
    for (std::thread& caller : callers) caller.join();
    call_often(*pools, 60, std::chrono::milliseconds(1));  // workers fall asleep
  }
  CHECK(ThreadPools::of(0) == nullptr, "ONNX Runtime's own threads");
}

// Share of so many seconds that is spent alone, by the speeds of both ways. Calls take 0.1 ms.
double share_alone(Sharing& sharing, double shared, double alone, double seconds) {
  double spent = 0;
  for (double now = 0; now < seconds; now += 1e-4) {
    const bool is_alone = sharing.alone();
    spent += is_alone ? 1e-4 : 0;
    sharing.record(1e-4 * (is_alone ? alone : shared), 1e-4);
  }
  return spent / seconds;
}

void test_the_faster_way_is_taken() {
  Sharing idle;
  CHECK(share_alone(idle, 1.8, 0.9, 10) == 0, "nothing is faster than two idle cores");
  Sharing interrupted;
  for (int stretch = 0; stretch < 400; ++stretch) {  // of 5 ms; a tenth of them is met by another program
    const double found = share_alone(interrupted, stretch % 10 ? 1.6 : 0.7, 0.9, 0.005);
    CHECK(found == 0, "a stretch alone after interruption %d: %.3f", stretch / 10, found);
  }
  Sharing loaded;
  double found = share_alone(loaded, 0.5, 0.9, 10);
  CHECK(found > 0.98, "beside a busy neighbour: %.3f", found);
  found = share_alone(loaded, 1.8, 0.9, 10);
  CHECK(found < 0.15, "when it has gone, in the time of the longest pause: %.3f", found);
  Sharing crowded;
  found = share_alone(crowded, 0.5, 0.3, 10);
  CHECK(found < 0.02, "where all wait, two wait less: %.3f", found);
}

}  // namespace

int main() {
  test_every_part_runs_once();
  test_the_faster_way_is_taken();
  return 0;
}
