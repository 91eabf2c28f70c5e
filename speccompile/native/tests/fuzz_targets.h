// Readers of untrusted inputs, by the kind of input: each gives an answer or an error, and nothing else happens.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "../bundle/blake3.h"
#include "../bundle/consistency.h"
#include "../bundle/hashes.h"
#include "../bundle/reader.h"
#include "../files.h"
#include "../runtime/decode_loop.h"
#include "../runtime/onnx_file.h"
#include "../runtime/window_invariance.h"
#include "engine_fixture.h"
#include "fuzz_files.h"
#include "fuzz_media.h"
#include "fuzz_texts.h"
#include "mutate.h"
#include "repair_manifest.h"

// Check that a written value is read again as it was.
inline spc::Json parsed(const std::string& input) {
  const spc::Json data = spc::Json::parse(input);
  const std::string written = data.canonical();
  if (spc::is_utf8(written)) CHECK(spc::Json::parse(written).canonical() == written, "JSON that reads as something else");
  return data;
}

// Drafts of somebody who knows nothing, and now and then does not keep to what is said.
inline spc::Drafts any_drafts(const spc::Manifest& manifest, size_t seed) {
  speccompile::Random random(seed);
  spc::Drafts drafts;
  for (int64_t i = 0, count = random.integer(0, manifest.tokens + 2); i < count; ++i) {
    drafts.tokens.push_back(random.integer(random.integer(0, 99) ? 0 : -1, manifest.vocabulary_size - 1));
    drafts.parents.push_back(manifest.is_chain() ? i - 1 : random.integer(random.integer(0, 99) ? -1 : -2, std::max<int64_t>(-1, i - 1)));
  }
  return drafts;
}

inline void generate(const spc::Manifest& manifest, spc::Engine& engine, const spc::Options& options, bool on_device) {
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
inline void run(const spc::Manifest& manifest, uint64_t seed) {
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

inline bool try_manifest(const std::string& input) {
  return allowed([&] {
    const spc::Manifest manifest = spc::Manifest::from_json(parsed(input), "manifest.json");
    spc::check_consistency(manifest, "manifest.json");  // as whoever opens a bundle does: what it refuses is never run
    for (uint64_t seed = 0; seed < 3; ++seed) run(manifest, input.size() + seed);
  });
}

inline bool try_hashes(const std::string& input) {
  return allowed([&] {
    spc::write_file(folder + "/hashes.json", input);
    const spc::Hashes hashes = spc::read_hashes(folder, input.size() % 2);
    for (const auto& [name, record] : hashes.files) CHECK(hashes.find(name), "%s", name.c_str());
    spc::check_files(folder, hashes, true);
  });
}

inline bool try_onnx(const std::string& input) {
  return allowed([&] {
    const auto locate = [](std::string_view location) { return "/elsewhere/" + std::string(location); };
    const std::vector<spc::Entries> tensors = spc::external_data(input);
    const std::string moved = spc::with_carriers(input, locate, {{"x", {{"prepacked_0", "y"}}}});
    CHECK(spc::external_data(moved).size() >= tensors.size(), "weights that are gone");
  });
}

inline bool try_kept(const std::string& input) {
  return allowed([&] {
    spc::write_file(folder + "/kept", input);
    read_kept(folder + "/kept");
  });
}

inline bool try_session(const std::string& input) {
  spc::write_file(folder + "/session", input);
  allowed([&] { read_any_session(folder + "/session", false); });
  return allowed([&] { read_any_session(folder + "/session", true); });  // whatever its hash
}

inline bool try_index(const std::string& input) {
  return allowed([&] { ask_index(folder, parsed(input)); });
}

inline bool try_picture(const std::string& input) {
  return allowed([&] { read_any_picture(input); });
}

inline bool try_wav(const std::string& input) {
  return allowed([&] { read_any_sound(input); });
}

// hashes.json of the folder, in which nothing is wrong.
inline std::string own_hashes() {
  spc::write_file(folder + "/listed", "x");
  const spc::Json record{spc::Json::Object{{"blake3", spc::hash_file(folder + "/listed")}, {"bytes", 1}}};
  const spc::Json files{spc::Json::Object{{"listed", record}}};
  return spc::Json(spc::Json::Object{{"digest", spc::hex(spc::blake3(files.canonical()))}, {"files", files}}).canonical();
}

inline std::string mended_manifest(const std::string& document, Mutator& mutator) {
  return mutator.one_in(4) ? document : mend::manifest(document, !mutator.one_in(4));
}

// Targets of fuzz_texts.h come last.
inline const std::vector<Target> kTargets = [] {
  std::vector<Target> all = {
      {"manifest", try_manifest, true, no_examples, mended_manifest},
      {"hashes", try_hashes, true, [] { return std::vector<std::string>{own_hashes()}; }},
      {"onnx", try_onnx, false},
      {"kept", try_kept, false, [] { return std::vector<std::string>{written_kept(folder + "/kept")}; }},
      {"session", try_session, false, [] { return std::vector<std::string>{written_session(folder + "/session")}; }},
      {"index", try_index, true, [] { return std::vector<std::string>{kIndexExample}; }},
      {"picture", try_picture, false, [] { return std::vector<std::string>(std::begin(kPictureExamples), std::end(kPictureExamples)); }},
      {"wav", try_wav, false, [] { return std::vector<std::string>{own_sound()}; }},
  };
  all.insert(all.end(), kTextTargets.begin(), kTextTargets.end());
  return all;
}();

inline const Target* target_of(char letter) {
  for (const Target& each : kTargets)
    if (*each.name == letter) return &each;
  return nullptr;
}
