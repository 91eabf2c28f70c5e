// Included by path_NAME.cpp: what the path offers.
#pragma once

#include "attention.h"
#if defined(SPECCOMPILE_AMX)
#include "amx.h"
#endif
#include "kernels.h"
#include "products.h"
#include "quantize.h"
#include "rows.h"
#include "states.h"

#define SPC_NAME_OF(x) #x
#define SPC_NAME(x) SPC_NAME_OF(x)

namespace speccompile {
namespace SPECCOMPILE_PATH {

#if defined(SPECCOMPILE_AMX)
#define SPC_PRODUCT(word) wide_##word
#else
#define SPC_PRODUCT(word) product_##word
#endif

extern const Kernels kKernels;
const Kernels kKernels = {
    SPC_NAME(SPECCOMPILE_PATH), pack,   quantize,  product_float32, product_bfloat16, SPC_PRODUCT(int8),
    SPC_PRODUCT(int4), product_blocks4, product_blocks8, attend, encode, encode_nibbles, normalize, gate, make_heads, softplus, convolve, recur,
};

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
