// Choice of the path of the kernels for this processor.
#pragma once

#include "kernels.h"

namespace speccompile {

// The paths of this library that the processor can run, the fastest first; null behind the last.
const Kernels* const* runnable_paths();

// The path in use: $SPECCOMPILE_KERNELS where it names one that can run, else the fastest.
const Kernels& kernels();

// Use the path of this name from now on, everywhere in the process. False where it cannot run.
bool use_path(const char* name);

}  // namespace speccompile
