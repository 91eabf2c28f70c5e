// The operators of the library, but for `Chain`, whose steps they are.
#pragma once

#include "attend.h"
#include "integers.h"
#include "linear.h"
#include "low_rank.h"
#include "rows.h"
#include "states.h"

namespace speccompile {

template <class...>
struct Types {};

using Operators =
    Types<LinearFloat32, LinearBFloat16, LinearInt8, LinearInt4, LinearBlocks<4>, LinearBlocks<8>, EmbedFloat32, EmbedBFloat16, EmbedInt8,
          EmbedBlocks<4>, EmbedBlocks<8>, Attend, AttendSinks, AttendLatent, AttendLatentSinks, AttendInt8, AttendInt8Sinks, AttendInt8Int4,
          AttendInt8Int4Sinks, EncodeInt4, DecodeInt4, EncodeInt8, DecodeInt8, SplitHeads, RotaryHeads, NormRotaryHeads, JoinRows, RotaryTables,
          RmsNorm, SkipRmsNorm, LayerNorm, GatedSilu, GatedGelu, Softplus, Log, Convolve, Shift, After, Recur, RecurDelta, Advance, AdvanceDelta, LowRank, Choose>;

}  // namespace speccompile
