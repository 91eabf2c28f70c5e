#include "media_inputs.h"

#include <algorithm>

#include "../errors.h"
#include "../images/media.h"
#include "sampling_inputs.h"

namespace spc {

MediaInputs::MediaInputs(Engine& engine, const Manifest& manifest)
    : engine_(engine),
      batch_(manifest.batch_size),
      has_blocks_(has_input(manifest, names::kMediaBlocks)),
      has_offsets_(has_input(manifest, names::kMediaOffsets)),
      has_next_(has_input(manifest, names::kMediaNext)),
      has_behind_(has_input(manifest, names::kMediaBehind)),
      ahead_(has_next_ ? 1 : 0),
      most_(manifest.batch_size * (manifest.prefill_chunk + ahead_)) {
  for (const Graph& graph : manifest.graphs)
    if (const Tensor* const media = graph.input(names::kMedia)) width_ = media->shape.back().size;
}

int64_t MediaInputs::count(const MediaParts& parts) const {
  const auto shows = [this](const auto& part) { return part.first->sequence->media && part.first->sequence->media->has_rows(read(part.second)); };
  return std::any_of(parts.begin(), parts.end(), shows) ? most_ : 1;
}

int64_t* MediaInputs::zeroed(const char* name, const Shape& shape, const Span& lines) const {
  int64_t* const found = engine_.host_view(name, shape).ints();
  const int64_t line = product(shape) / shape.front();
  std::fill_n(found + lines.start * line, lines.size() * line, 0);
  return found;
}

void MediaInputs::write(int64_t window, const Span& lines, const MediaParts& parts, int64_t count) const {
  if (has_offsets_) {
    int64_t* const offsets = zeroed(names::kMediaOffsets, {batch_, kAxes, window}, lines);
    for (const auto& [slot, part] : parts)
      for (int64_t axis = 0; slot->sequence->media && axis < kAxes; ++axis)
        for (int64_t i = 0; i < window; ++i) offsets[(slot->index * kAxes + axis) * window + i] = slot->sequence->media->offset(static_cast<size_t>(axis), part.start + i);
  }
  if (has_behind_) {
    int64_t* const behind = zeroed(names::kMediaBehind, {batch_}, lines);
    for (const auto& [slot, part] : parts)
      if (slot->sequence->media) behind[slot->index] = slot->sequence->media->offset_behind();
  }
  if (has_next_) zeroed(names::kMediaNext, {batch_, window}, lines);
  zeroed(names::kMediaRows, {batch_, window}, lines);
  if (has_blocks_) zeroed(names::kMediaBlocks, {batch_, window}, lines);
  int64_t filled = 0;
  for (const auto& [slot, part] : parts)
    if (count > 1 && slot->sequence->media) filled = write_rows(*slot, part, window, count, filled);
}

int64_t MediaInputs::write_rows(const Slot& slot, const Span& part, int64_t window, int64_t count, int64_t filled) const {
  images::SequenceMedia& media = *slot.sequence->media;
  float* const rows = engine_.host_view(names::kMedia, {count, width_}).floats();
  int64_t* const numbers = engine_.host_view(names::kMediaRows, {batch_, window}).ints() + slot.index * window;
  int64_t* const blocks = has_blocks_ ? engine_.host_view(names::kMediaBlocks, {batch_, window}).ints() + slot.index * window : nullptr;
  int64_t* const next = has_next_ ? engine_.host_view(names::kMediaNext, {batch_, window}).ints() + slot.index * window : nullptr;
  for (int64_t place = part.start; place < part.stop + ahead_; ++place) {
    const float* const row = media.row(place);
    if (!row) continue;
    if (filled == count || place - part.start >= window + ahead_)
      throw Error(Kind::kBundle, "manifest.json: a picture has more rows than prefill_chunk, " + std::to_string(count / batch_), "build the bundle again");
    std::copy_n(row, width_, rows + filled++ * width_);
    if (next && place > part.start) next[place - part.start - 1] = filled;
    if (place >= part.stop) continue;
    numbers[place - part.start] = filled;
    if (blocks) blocks[place - part.start] = media.block(place);
  }
  return filled;
}

int64_t chunk_stop(const Slot& slot, int64_t start, int64_t stop) { return slot.sequence->media ? slot.sequence->media->chunk_stop(start, stop) : stop; }

}  // namespace spc
