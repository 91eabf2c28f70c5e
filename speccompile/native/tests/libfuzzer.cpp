// The inputs of fuzz.cpp, changed by libFuzzer, which follows what they reach. scripts/fuzz compiles and runs it.
//
//   libfuzzer --target=NAME --examples=FOLDER FOLDER FOLDER_OF_INPUTS ..
//
// It writes its own examples of the target into FOLDER first.
#include <unistd.h>

#include <filesystem>
#include <string_view>

#ifdef SPECCOMPILE_FUZZ_TEXTS
#include "fuzz_texts.h"
#else
#include "fuzz_targets.h"
#endif

namespace {

#ifdef SPECCOMPILE_FUZZ_TEXTS
const std::vector<Target>& kTargets = kTextTargets;
#endif

const Target* chosen = nullptr;

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  constexpr std::string_view kTarget = "--target=", kExamples = "--examples=";  // libFuzzer leaves alone what begins with two dashes
  std::string examples;
  for (int i = 1; i < *count; ++i) {
    const std::string word = (*words)[i];
    for (const Target& each : kTargets)
      if (word == std::string(kTarget) + each.name) chosen = &each;
    if (word.rfind(kExamples, 0) == 0) examples = word.substr(kExamples.size());
  }
  CHECK(chosen && !examples.empty(), "usage: %s --target=NAME --examples=FOLDER FOLDER FOLDER_OF_INPUTS ..", (*words)[0]);
  folder = std::filesystem::temp_directory_path().string() + "/speccompile-fuzz-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& each : chosen->examples()) spc::write_file(examples + "/example-" + std::to_string(number++), each);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Bytes that change at random are seldom JSON: every other time a value of the document changes instead.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  Mutator mutator(seed);
  if (!chosen->is_json || mutator.one_in(2)) return LLVMFuzzerMutate(data, size, most);
  const std::string made = changed(*chosen, std::string(reinterpret_cast<const char*>(data), size), mutator);
  if (made.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(made.begin(), made.end(), data);
  return made.size();
}
