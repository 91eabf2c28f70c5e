// Run rounds when a session begins, so that its first generation neither times rounds nor meets first runs
// (runtime/first_times.py).
#pragma once

#include "decode_loop.h"
#include "round_times.h"

namespace spc {

// Time rounds, unless this machine has recorded what they cost, and let the draft length start from the times. Time those of a
// small model in any case. All slots of `loop` must be free. Persistent drafter states change; reset them afterwards.
void prepare_rounds(DecodeLoop& loop, RecordedTimes& times);

}  // namespace spc
