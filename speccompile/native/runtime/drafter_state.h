// States that outlive a generation: emptied, written into a file, read again (runtime/kept.py, which says what the file is).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../bundle/manifest.h"
#include "engine.h"

namespace spc {

// The kept states of one engine's buffers.
class PersistentState {
 public:
  // tokenizer: the hash of the bundle's, "" for none.
  PersistentState(Engine& engine, const Manifest& manifest, const EngineEntry& entry, std::string tokenizer);

  // Throws Error(kUsage) where there are none.
  void check() const;
  // Make all of them what they are in a session that was just created: zeros.
  void reset() const;
  // Write all of them; the file is there whole or as it was. Throws Error(kUsage) where it cannot be written.
  void save(const std::string& path) const;
  // Read all of them. Throws Error(kUsage) for a file that cannot be read, is no such file or not of this bundle; the states
  // are then as they were.
  void load(const std::string& path) const;

 private:
  using States = std::map<std::string, const Tensor*>;  // by buffer

  static States states(const std::vector<Graph>& graphs);
  Json metadata() const;
  Json described() const;
  std::string header() const;
  void check_header(Json header, size_t size, const std::string& path) const;

  Engine& engine_;
  const Manifest& manifest_;
  const States states_;
  const std::string kind_, tokenizer_;
};

}  // namespace spc
