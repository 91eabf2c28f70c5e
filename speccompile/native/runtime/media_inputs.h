// Inputs of a round for pictures (runtime/rounds/media_inputs.py, speccompile/bundle/media.py).
#pragma once

#include "bound_graphs.h"
#include "slots.h"

namespace spc {

// Part of the tokens of a slot's sequence that a run reads.
using MediaParts = SlotSpans;

// Writes the rows of pictures of a run.
class MediaInputs {
 public:
  MediaInputs(Engine& engine, const Manifest& manifest);

  // Return how many rows of pictures the inputs of a run over these parts have room for: 1 without pictures, else as many as any run
  // needs, so that graphs are bound with two widths.
  int64_t count(const MediaParts& parts) const;
  // Write the inputs of a run over the slots `lines`, which is bound with a window of so many tokens and `count` rows. Throws
  // Error(kEngine) where a picture cannot be encoded.
  void write(int64_t window, const Span& lines, const MediaParts& parts, int64_t count) const;

 private:
  Span read(const Span& part) const { return {part.start, part.stop + ahead_}; }
  // Write the rows of one slot behind the first `filled` ones. Return how many are filled then.
  int64_t write_rows(const Slot& slot, const Span& part, int64_t window, int64_t count, int64_t filled) const;
  int64_t* zeroed(const char* name, const Shape& shape, const Span& lines) const;

  Engine& engine_;
  const int64_t batch_;
  int64_t width_ = 0;
  const bool has_blocks_, has_offsets_, has_next_, has_behind_;
  const int64_t ahead_;  // tokens behind a part whose rows the drafter reads
  const int64_t most_;
};

// Return where a chunk of a slot's sequence ends that begins at `start` and would end at `stop`.
int64_t chunk_stop(const Slot& slot, int64_t start, int64_t stop);

}  // namespace spc
