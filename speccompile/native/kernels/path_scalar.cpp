// Any processor.
#define SPECCOMPILE_PATH scalar
#define SPECCOMPILE_LANES "lanes_scalar.h"
#include "path.h"
