// AVX-512 with byte products, and AMX for many rows: Intel since Sapphire Rapids.
#define SPECCOMPILE_PATH amx_int8
#define SPECCOMPILE_LANES "lanes_avx512.h"
#define SPECCOMPILE_AMX
#include "path.h"
