// Choice and opening of a bundle's engine on this machine (runtime/devices/engines.py).
#pragma once

#include <memory>
#include <string>

#include "engine.h"
#include "ort.h"

namespace spc {

// Return the engine of this name; without a name the first that this machine can run, with a warning for every earlier one.
// Throws Error(kUsage) if the bundle has no such engine, Error(kEngine) if it, or all of them, cannot run here.
const EngineEntry& choose(const Ort& library, const Manifest& manifest, const std::string& name);

// Open an engine of the bundle in `folder`, which must be able to run here. threads: CPU threads, 0 for one per core that this
// process may use. verify: check the engine's cached files on this machine against their hashes.
std::shared_ptr<SharedEngine> open_engine(const Ort& library, const std::string& folder, const EngineEntry& entry, int threads, bool verify);

}  // namespace spc
