// Untrusted inputs, changed at random: each gives an answer or an error, and nothing else happens.
//
//   fuzz SECONDS SEED FOLDER TARGET:FILE ..      with a main of its own; targets: manifest, hashes, tokenizer,
//                                            onnx, kept, session, index, jinja, request; for some it has inputs of its own
//   fuzz -seed=1 FOLDER_OF_INPUTS ..             as libFuzzer, with clang and -DSPECCOMPILE_LIBFUZZER -fsanitize=fuzzer
//
// The input that is being tried lies in FOLDER/input, with a letter for its target in front: it stays there when this
// program ends on the way. `fuzz - - FOLDER input` tries it again.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>

#include "../bundle/blake3.h"
#include "../bundle/hashes.h"
#include "../bundle/reader.h"
#include "../files.h"
#include "../runtime/window_invariance.h"
#include "../runtime/decode_loop.h"
#include "../runtime/onnx_file.h"
#include "../system.h"
#include "../text/text.h"
#include "engine_fixture.h"
#include "fuzz_constraints.h"
#include "fuzz_files.h"
#include "fuzz_requests.h"
#include "repair_manifest.h"
#include "mutate.h"

namespace {

std::string folder;  // of the files of ours

// Runs `work`, which may fail as the runtime does. Returns whether it did not.
template <class Work>
bool allowed(Work work) {
  try {
    work();
    return true;
  } catch (const spc::Error& error) {
    CHECK(error.kind != spc::Kind::kDefect && !error.message.empty(), "%s", error.what());
  } catch (const spc::JsonError&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return false;
}

// Check that a written value is read again as it was.
spc::Json parsed(const std::string& input) {
  const spc::Json data = spc::Json::parse(input);
  const std::string written = data.canonical();
  if (spc::is_utf8(written)) CHECK(spc::Json::parse(written).canonical() == written, "JSON that reads as something else");
  return data;
}

// Random drafts, some of which break the contract of proposers.
spc::Drafts any_drafts(const spc::Manifest& manifest, size_t seed) {
  speccompile::Random random(seed);
  spc::Drafts drafts;
  for (int64_t i = 0, count = random.integer(0, manifest.tokens + 2); i < count; ++i) {
    drafts.tokens.push_back(random.integer(random.integer(0, 99) ? 0 : -1, manifest.vocabulary_size - 1));
    drafts.parents.push_back(manifest.is_chain() ? i - 1 : random.integer(random.integer(0, 99) ? -1 : -2, std::max<int64_t>(-1, i - 1)));
  }
  return drafts;
}

void generate(const spc::Manifest& manifest, spc::Engine& engine, const spc::Options& options, bool on_device) {
  spc::DecodeLoop loop(engine, manifest, manifest.graphs, on_device);
  loop.drafting().set_proposer([&](const spc::TokenIds& text) { return any_drafts(manifest, text.size()); });
  spc::Rows rows;
  for (int64_t row = 0; row < std::min<int64_t>(2, manifest.batch_size); ++row) {
    const int64_t length = std::min<int64_t>(1 + 20 * row, manifest.max_length);
    const spc::TokenIds prompt(static_cast<size_t>(length), manifest.vocabulary_size - 1);
    rows.emplace_back(prompt, options, options.samplings[0], manifest.max_length, manifest.eos_token_ids, nullptr,
                      std::vector<std::string>());
  }
  loop.begin(rows, !options.autoregressive, options.adaptive);
  for (int i = 0; i < 8; ++i) loop.step();
}

// A bundle of this manifest, whose graphs give anything.
void run(const spc::Manifest& manifest, uint64_t seed) {
  spc::Options options;
  options.max_new_tokens = 30;
  options.logprobs = seed % 3 == 0;
  options.autoregressive = seed % 5 == 0;
  options.samplings.emplace_back();
  options.samplings[0].repetition_penalty = seed % 2 ? 1 : 1.5;
  options.samplings[0].temperature = seed % 4 ? 0 : 0.5;
  for (const spc::EngineEntry& entry : manifest.engines) {
    AnyEngine engine(entry, seed);
    allowed([&] { generate(manifest, engine, options, seed % 7 == 0); });
    AnyEngine another(entry, seed);
    allowed([&] { spc::compare_windows(another, manifest); });
    allowed([&] { spc::PersistentState(another, manifest, entry, "").reset(); });
  }
}

bool try_manifest(const std::string& input) {
  return allowed([&] {
    const spc::Manifest manifest = spc::Manifest::from_json(parsed(input), "manifest.json");
    for (uint64_t seed = 0; seed < 3; ++seed) run(manifest, input.size() + seed);
  });
}

bool try_hashes(const std::string& input) {
  return allowed([&] {
    spc::write_file(folder + "/hashes.json", input);
    const spc::Hashes hashes = spc::read_hashes(folder, input.size() % 2);
    for (const auto& [name, record] : hashes.files) CHECK(hashes.find(name), "%s", name.c_str());
    spc::check_files(folder, hashes, true);
  });
}

// Up to a byte that no UTF-8 has, a tokenizer; behind it a text.
bool try_tokenizer(const std::string& input) {
  const size_t end = std::min(input.find('\xff'), input.size());
  return allowed([&] {
    spc::write_file(folder + "/tokenizer.json", std::string_view(input).substr(0, end));
    const std::shared_ptr<const spc::Text> text = spc::Text::open(folder + "/tokenizer.json");
    const std::string own(input, std::min(end + 1, input.size())), repeated = "def f(x): aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
                      mixed = " gr\xc3\xb6\xc3\x9f" "e \xe4\xbd\xa0 <s>\r\n\n\t1234567 don't";
    for (const std::string& each : {own, repeated, mixed}) {
      spc::TokenIds ids;
      allowed([&] { ids = text->encode(each, each.size() % 2); });
      ids.insert(ids.end(), {-1, 0, 1, 1 << 20});
      allowed([&] { CHECK(spc::is_utf8(text->decode(ids)), "decoded text that is not UTF-8"); });
      spc::IncrementalDetokenizer stream(text, ids, {"stop"});
      allowed([&] { stream.push(ids) += stream.finish(); });
    }
  });
}

bool try_onnx(const std::string& input) {
  return allowed([&] {
    const auto locate = [](std::string_view location) { return "/elsewhere/" + std::string(location); };
    const std::vector<spc::Entries> tensors = spc::external_data(input);
    const std::string moved = spc::with_carriers(input, locate, {{"x", {{"prepacked_0", "y"}}}});
    CHECK(spc::external_data(moved).size() >= tensors.size(), "weights that are gone");
  });
}

bool try_kept(const std::string& input) {
  return allowed([&] {
    spc::write_file(folder + "/kept", input);
    read_kept(folder + "/kept");
  });
}

bool try_session(const std::string& input) {
  spc::write_file(folder + "/session", input);
  allowed([&] { read_any_session(folder + "/session", false); });
  return allowed([&] { read_any_session(folder + "/session", true); });  // whatever its hash
}

bool try_index(const std::string& input) {
  return allowed([&] { ask_index(folder, parsed(input)); });
}

bool try_jinja(const std::string& input) {
  return allowed([&] { render_any(input); });
}

bool try_request(const std::string& input) {
  return allowed([&] { read_any(input); });
}

bool try_constraint(const std::string& input) {
  return allowed([&] { impose_any(folder, input); });
}

struct Target {
  const char* name;
  bool (*run)(const std::string& input);
  bool is_json;
};
constexpr Target kTargets[] = {{"manifest", try_manifest, true},
                               {"hashes", try_hashes, true},
                               {"tokenizer", try_tokenizer, true},
                               {"onnx", try_onnx, false},
                               {"kept", try_kept, false},
                               {"session", try_session, false},
                               {"index", try_index, true},
                               {"jinja", try_jinja, false},
                               {"request", try_request, false},
                               {"constraint", try_constraint, false}};

const Target* target_of(char letter) {
  for (const Target& each : kTargets)
    if (*each.name == letter) return &each;
  return nullptr;
}

// Make the folder of the files that are written for an input, and one file that a hashes.json may list.
void make_folder(const std::string& where) {
  folder = where;
  std::filesystem::create_directories(folder);
  spc::write_file(folder + "/listed", "x");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (folder.empty()) make_folder(std::filesystem::temp_directory_path().string() + "/speccompile-fuzz-" + std::to_string(getpid()));
  const Target* const target = size ? target_of(static_cast<char>(*data)) : nullptr;
  if (target) target->run({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}

#if !defined(SPECCOMPILE_LIBFUZZER)
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

  void run(const std::string& input) {
    spc::write_file(folder + "/input", *target->name + input);
    const double start = spc::wall_seconds();
    wake_after(kSlowest);
    const bool is_taken = target->run(input);
    wake_after(0);
    slowest = std::max(slowest, spc::wall_seconds() - start);
    ++tried;
    taken += is_taken;
    is_last_taken = is_taken;
  }

  bool is_last_taken = false;
};

std::string changed(const Corpus& corpus, const std::string& input, Mutator& mutator) {
  if (!corpus.target->is_json || mutator.one_in(8)) return mutator.bytes(input);
  const std::string made = mutator.document(input);
  return corpus.target->run == try_manifest && !mutator.one_in(4) ? mend::manifest(made, !mutator.one_in(4)) : made;
}

// hashes.json of the folder, in which nothing is wrong.
std::string own_hashes() {
  const spc::Json record{spc::Json::Object{{"blake3", spc::hash_file(folder + "/listed")}, {"bytes", 1}}};
  const spc::Json files{spc::Json::Object{{"listed", record}}};
  return spc::Json(spc::Json::Object{{"digest", spc::hex(spc::blake3(files.canonical()))}, {"files", files}}).canonical();
}

std::vector<Corpus> read(int count, char** words) {
  std::vector<Corpus> corpora = {{target_of('h'), {own_hashes()}},
                                 {target_of('k'), {written_kept(folder + "/kept")}},
                                 {target_of('s'), {written_session(folder + "/session")}},
                                 {target_of('i'), {kIndexExample}},
                                 {target_of('r'), {kRequestExample, kFormExample}},
                                 {target_of('c'), {std::begin(kConstraintExamples), std::end(kConstraintExamples)}}};
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
      const std::string input = changed(corpus, mutator.one_of(corpus.inputs), mutator);
      corpus.run(input);
      if (corpus.is_last_taken) corpus.keep(input, mutator);
    }
  }
  for (const Corpus& corpus : corpora)
    std::printf("%s: %d inputs, %d taken, the slowest took %.2f s\n", corpus.target->name, corpus.tried, corpus.taken,
                corpus.slowest);
}

}  // namespace

int main(int count, char** words) {
  CHECK(count > 4, "usage: %s SECONDS SEED FOLDER TARGET:FILE ..", words[0]);
  make_folder(words[3]);
  signal(SIGPROF, too_slow);
  if (words[1] == std::string("-")) {
    const std::string input = spc::read_file(words[4]);
    return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::vector<Corpus> corpora = read(count - 4, words + 4);
  fuzz(corpora, std::atof(words[1]), std::strtoull(words[2], nullptr, 10));
  return 0;
}
#endif
