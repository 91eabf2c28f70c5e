// NEON with byte products: Arm since v8.4, and many of v8.2.
#define SPECCOMPILE_PATH neon_dot
#define SPECCOMPILE_LANES "lanes_neon.h"
#include "path.h"
