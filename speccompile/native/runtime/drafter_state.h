// Persistent drafter states: reset, save to a file, load (runtime/rounds/drafter_state.py describes the file).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../bundle/manifest.h"
#include "engine.h"

namespace spc {

// Persistent states in one engine's buffers.
class PersistentState {
 public:
  // tokenizer: hash of the bundle's tokenizer, "" for none.
  PersistentState(Engine& engine, const Manifest& manifest, const EngineEntry& entry, std::string tokenizer);

  // Throws Error(kUsage) if the bundle has no such states.
  void check() const;
  // Reset all states to zeros, as in a new session.
  void reset() const;
  // Write all states to a file atomically. Throws Error(kUsage) if it cannot be written.
  void save(const std::string& path) const;
  // Read all states from a file. Throws Error(kUsage) for a file that is unreadable, invalid or of another bundle; the states
  // are then unchanged.
  void load(const std::string& path) const;

 private:
  using States = std::map<std::string, const Tensor*>;  // by buffer

  static States states(const std::vector<Graph>& graphs);
  Json metadata() const;
  Json tensor_entries() const;
  std::string header() const;
  void check_header(Json header, size_t size, const std::string& path) const;

  Engine& engine_;
  const Manifest& manifest_;
  const States states_;
  const std::string kind_, tokenizer_;
};

}  // namespace spc
