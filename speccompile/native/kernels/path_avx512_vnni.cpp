// AVX-512 with byte products: Intel since Ice Lake, AMD since Zen 4.
#define SPECCOMPILE_PATH avx512_vnni
#define SPECCOMPILE_LANES "lanes_avx512.h"
#include "path.h"
