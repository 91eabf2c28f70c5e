// AVX2 with byte products: Intel since Alder Lake, AMD since Zen 5.
#define SPECCOMPILE_PATH avx_vnni
#define SPECCOMPILE_LANES "lanes_avx2.h"
#define SPECCOMPILE_VNNI
#include "path.h"
