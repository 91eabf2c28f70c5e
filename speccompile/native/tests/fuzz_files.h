// Untrusted files: a persistent drafter state, a session, and the header of an index.
#pragma once

#include <filesystem>
#include <string>

#include "../bundle/manifest.h"
#include "../files.h"
#include "../index/retrieval.h"
#include "../runtime/drafter_state.h"
#include "../runtime/session_file.h"
#include "engine_fixture.h"

// A bundle whose drafter keeps two states.
inline spc::Manifest student() {
  spc::Graph graph;
  graph.name = "draft";
  graph.inputs = {{"table", "int64", "kept.table", "state", {{3, ""}, {2, ""}}}, {"seen", "float32", "kept.seen", "state", {{4, ""}}}};
  spc::Manifest manifest;
  manifest.vocabulary_size = 3;
  manifest.graphs = {graph};
  manifest.engines.emplace_back();
  manifest.engines[0].graphs = {graph};
  return manifest;
}

// Check that a state that was read is written again as it was.
inline void read_kept(const std::string& path) {
  const spc::Manifest manifest = student();
  AnyEngine engine(manifest.engines[0], 1);
  const spc::PersistentState kept(engine, manifest, manifest.engines[0], "");
  kept.load(path);
  const spc::Array table = engine.host_view("kept.table", {3, 2});
  const std::string before(static_cast<const char*>(table.data), table.bytes());
  kept.save(path);
  kept.reset();
  kept.load(path);
  CHECK(before == std::string(static_cast<const char*>(table.data), table.bytes()), "a state that is read as something else");
}

inline std::string written_kept(const std::string& path) {
  const spc::Manifest manifest = student();
  AnyEngine engine(manifest.engines[0], 1);
  spc::PersistentState(engine, manifest, manifest.engines[0], "").save(path);
  return spc::read_file(path);
}

constexpr size_t kMostOfSession = 1 << 16;  // bytes

// Check that a state that was read is written again as it was. trusted: see `read_session`.
inline void read_any_session(const std::string& path, bool trusted) {
  const spc::SessionFile file = spc::read_session(path, kMostOfSession, trusted);
  spc::write_session(path + ".again", file);
  const spc::SessionFile again = spc::read_session(path + ".again", kMostOfSession);
  CHECK(again.metadata == file.metadata && again.tensors.size() == file.tensors.size(), "a session that is read as another one");
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const spc::SessionFile::Tensor &one = file.tensors[i], &other = again.tensors[i];
    CHECK(one.name == other.name && one.dtype == other.dtype && one.shape == other.shape && one.values == other.values, "%s", one.name.c_str());
  }
}

inline std::string written_session(const std::string& path) {
  spc::SessionFile file;
  file.metadata = {{"contract", "3"}, {"drafter", "d"}, {"drafter_length", "2"}, {"target weights", "a"}, {"note.said", "\xc3\xa9"}};
  file.add("session.tokens", "I64", {3}, std::string(24, '\1'));
  file.add("target.key.0", "I8", {2, 3, 4}, std::string(24, '\2'));
  file.add("target.key_scale.0", "F32", {2, 3}, std::string(24, '\3'));
  file.add("drafter.state.0", "F32", {}, std::string(4, '\4'));
  spc::write_session(path, file);
  return spc::read_file(path);
}

constexpr const char* kIndexExample = R"({"header": {"chunks": [4, 2], "format": 1}, "policy": {"branching": 0, "fewest": 1, )"
                                      R"("most": 3, "occurrences": 5}, "suffixes": [0, 1, 2, 3]})";

// Header, policy and suffixes of an index, whose tokens are always the same.
inline void ask_index(const std::string& folder, const spc::Json& given) {
  const std::string four("\0\0\0\1\0\0\0\2\0\0\0\1\xff\xff\xff\xff", 16);
  spc::write_file(folder + "/0.tokens", four);
  spc::write_file(folder + "/1.tokens", four.substr(8));
  spc::write_file(folder + "/1.suffixes", four.substr(8));
  std::string suffixes;
  for (const spc::Json& place : given["suffixes"].list())
    for (int shift = 0; shift < 32; shift += 8) suffixes += static_cast<char>(place.integer() >> shift);
  spc::write_file(folder + "/0.suffixes", suffixes);
  spc::write_file(folder + "/index.json", given["header"].canonical());
  spc::write_file(folder + "/policy.json", given["policy"].canonical());
  const spc::Drafts drafts = spc::RetrievalProposer(folder, 4, 3).propose({1, 2, 1});
  CHECK(drafts.tokens.size() <= 4 && drafts.tokens.size() == drafts.parents.size(), "%zu drafts", drafts.tokens.size());
}
