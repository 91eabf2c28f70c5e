// Adapters of the target in slots of a session, chosen by each sequence (runtime/adapters.py, machine/formats/peft.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../bundle/manifest.h"
#include "engine.h"

namespace spc {

class Adapters {
 public:
  // graphs: the engine's.
  Adapters(Engine& engine, const std::vector<Graph>& graphs);

  // Load an adapter, as PEFT writes it, into a free slot. Throws Error(kUsage) for a name that cannot be taken and without a
  // free slot, Error(kFailed) for files that are damaged, of another base, or of what cannot be chosen at run time. Nothing is
  // changed then.
  void load(const std::string& name, const std::string& folder);
  // Free the slot of an adapter. Throws Error(kUsage) for a name that is not loaded.
  void unload(const std::string& name);
  // A loaded adapter: its slot, from 1 on, and its key, a digest of its numbers. Only sequences of one key may share what they read.
  struct Loaded {
    int64_t slot;
    std::string key;
  };
  // Return a loaded adapter. Throws Error(kUsage) for a name that is not loaded.
  const Loaded& find(const std::string& name) const;

 private:
  using Matrix = std::vector<float>;
  using Matrices = std::map<std::string, Matrix>;  // buffer -> rows [r, width]

  void check_name(const std::string& name) const;
  Matrices read(const std::string& folder) const;

  Engine& engine_;
  std::map<std::string, Shape> shapes_;  // buffer -> [slots + 1, r, width]
  std::vector<std::string> order_;       // of the buffers, in which the graphs name them
  std::map<std::string, Loaded> loaded_;
  int64_t slots_ = 0, rank_ = 0;
};

}  // namespace spc
