// Untrusted inputs, changed at random: each gives an answer or an error, and nothing else happens.
//
//   fuzz SECONDS SEED FOLDER TARGET:FILE ..
//
// Targets are those of fuzz_targets.h; for some it has inputs of its own. Every input is tried as it is before any is changed.
// The input that is being tried lies in FOLDER/input, with a letter for its target in front: it stays there when this
// program ends on the way. `fuzz - - FOLDER input` tries it again.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "../system.h"
#include "fuzz_targets.h"

namespace {

constexpr int kSlowest = 60;  // seconds of the processor for one input, with sanitizers: a pattern may take some, never longer

// Let SIGPROF come after so many seconds of this process, which a machine that stands still does not use; 0: never.
void wake_after(int seconds) {
  const itimerval asked{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &asked, nullptr);
}

void too_slow(int) {
  constexpr char kTold[] = "an input takes too long: it is in the folder's file `input`\n";
  if (write(STDERR_FILENO, kTold, sizeof kTold - 1) < 0) _exit(3);
  _exit(2);
}

// Inputs of one target, and what came of them.
struct Corpus {
  const Target* target;
  std::vector<std::string> inputs;
  int tried = 0, taken = 0;
  double slowest = 0;

  // Keep accepted inputs, which are changed further; the others lead nowhere.
  void keep(const std::string& input, Mutator& mutator) {
    constexpr size_t kMost = 500, kLargest = 1 << 16;
    if (input.size() > kLargest) return;
    if (inputs.size() < kMost)
      inputs.push_back(input);
    else
      mutator.one_of(inputs) = input;
  }

  // Return whether the target has taken the input.
  bool run(const std::string& input) {
    spc::write_file(folder + "/input", *target->name + input);
    const double start = spc::wall_seconds();
    wake_after(kSlowest);
    const bool is_taken = target->run(input);
    wake_after(0);
    slowest = std::max(slowest, spc::wall_seconds() - start);
    ++tried;
    taken += is_taken;
    return is_taken;
  }
};

std::vector<Corpus> read(int count, char** words) {
  std::vector<Corpus> corpora;
  for (const Target& each : kTargets)
    if (const std::vector<std::string> own = each.examples(); !own.empty()) corpora.push_back({&each, own});
  for (int i = 0; i < count; ++i) {
    const std::string word = words[i];
    const size_t colon = word.find(':');
    const Target* const target = target_of(word[0]);
    CHECK(colon != std::string::npos && target, "%s: expected TARGET:FILE", words[i]);
    auto place = std::find_if(corpora.begin(), corpora.end(), [&](const Corpus& each) { return each.target == target; });
    if (place == corpora.end()) place = corpora.insert(corpora.end(), Corpus{target, {}});
    place->inputs.push_back(spc::read_file(word.substr(colon + 1)));
  }
  return corpora;
}

void fuzz(std::vector<Corpus>& corpora, double seconds, uint64_t seed) {
  Mutator mutator(seed);
  for (Corpus& corpus : corpora)
    for (const std::string& input : std::vector<std::string>(corpus.inputs)) corpus.run(input);
  for (const double start = spc::wall_seconds(); spc::wall_seconds() - start < seconds;) {
    for (Corpus& corpus : corpora) {
      const std::string input = changed(*corpus.target, mutator.one_of(corpus.inputs), mutator);
      if (corpus.run(input)) corpus.keep(input, mutator);
    }
  }
  for (const Corpus& corpus : corpora)
    std::printf("%s: %d inputs, %d taken, the slowest took %.2f s\n", corpus.target->name, corpus.tried, corpus.taken,
                corpus.slowest);
}

}  // namespace

int main(int count, char** words) {
  CHECK(count > 4, "usage: %s SECONDS SEED FOLDER TARGET:FILE ..", words[0]);
  folder = words[3];
  std::filesystem::create_directories(folder);
  signal(SIGPROF, too_slow);
  if (words[1] == std::string("-")) {
    const std::string input = spc::read_file(words[4]);
    if (const Target* const target = input.empty() ? nullptr : target_of(input[0])) target->run(input.substr(1));
    return 0;
  }
  std::vector<Corpus> corpora = read(count - 4, words + 4);
  fuzz(corpora, std::atof(words[1]), std::strtoull(words[2], nullptr, 10));
  return 0;
}
