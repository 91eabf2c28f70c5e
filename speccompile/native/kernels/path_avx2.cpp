// AVX2 with FMA and F16C: Intel since Haswell, AMD since Zen.
#define SPECCOMPILE_PATH avx2
#define SPECCOMPILE_LANES "lanes_avx2.h"
#include "path.h"
