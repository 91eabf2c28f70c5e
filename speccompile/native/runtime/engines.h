// Which engine of a bundle runs here, and what runs it (runtime/engines.py).
#pragma once

#include <memory>
#include <string>

#include "engine.h"
#include "ort.h"

namespace spc {

// The engine of this name; without a name the first that this machine can run, with a warning for each before it. Throws
// Error(kUsage) when the bundle has no such engine, Error(kEngine) when it, or none of them, can run here.
const EngineEntry& choose(const Ort& library, const Manifest& manifest, const std::string& name);

// Open an engine that can run here, of the bundle in `folder`. threads: for what it does on the processor, 0 for one for each
// core that this process may use. verify: compare what of it is kept on this machine with its hashes.
std::shared_ptr<SharedEngine> open_engine(const Ort& library, const std::string& folder, const EngineEntry& entry, int threads, bool verify);

}  // namespace spc
