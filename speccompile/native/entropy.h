// Random bits of the system.
#pragma once

#include <cstdint>

namespace spc {

// Return 32 random bits. It opens no file: a root without /dev, and a process with no descriptor left, have them as well.
uint32_t random_bits();

}  // namespace spc
