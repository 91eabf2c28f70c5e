#include "media.h"

#include <algorithm>
#include <chrono>

#include "../errors.h"

namespace spc::images {
namespace {

constexpr uint64_t kIdentities = uint64_t{1} << 62;  // ids that stand for rows of pictures: all negative, so that none is a token's
constexpr int kMoment = 50;  // milliseconds between two looks at what has ended meanwhile
constexpr const char* kProcessor = "give the ids that the target's processor makes of prompt and pictures, or a text";

static_assert(kAxes == 3, "time, row, column");

int64_t identity_of(const Picture& picture, int64_t row) {
  uint64_t base = 0;
  for (size_t i = 8; i-- > 0;) base = base << 8 | static_cast<uint8_t>(picture.key[i]);
  return -1 - static_cast<int64_t>((base + static_cast<uint64_t>(row)) % kIdentities);
}

}  // namespace

SequenceMedia::SequenceMedia(std::vector<PicturePtr> pictures, const TokenIds& ids, std::shared_ptr<Encoder> encoder)
    : pictures_(std::move(pictures)), encoder_(std::move(encoder)), size_(static_cast<int64_t>(ids.size())), identity_(ids), encoded_(pictures_.size()) {
  const ImageSettings& images = encoder_->family().images;
  int64_t wanted = 0;
  for (const PicturePtr& picture : pictures_) counts_.push_back(encoder_->family(picture->is_low).n_rows(picture->grid));
  for (const int64_t count : counts_) wanted += count;
  const auto found = static_cast<int64_t>(std::count(ids.begin(), ids.end(), images.token_id));
  if (found != wanted)
    throw Error(Kind::kPrompt, "the prompt has " + std::to_string(found) + " placeholders of pictures (token " + std::to_string(images.token_id) + "), expected " +
                                   std::to_string(wanted) + ", one for each row of " + std::to_string(pictures_.size()) + " pictures",
                kProcessor);
  size_t picture = 0;
  int64_t row = 0;
  rows_.assign(ids.size(), 0);
  blocks_.assign(ids.size(), 0);
  spans_.assign(pictures_.size(), {size_, 0});
  for (size_t place = 0; place < ids.size(); ++place) {
    if (ids[place] != images.token_id) continue;
    while (row == counts_[picture]) {
      ++picture;
      row = 0;
    }
    const auto at = static_cast<int64_t>(place);
    auto& [begin, end] = spans_[picture];
    begin = std::min(begin, at);
    end = at + 1;
    blocks_[place] = static_cast<int64_t>(picture) + 1;
    identity_[place] = identity_of(*pictures_[picture], row);
    rows_[place] = row++;
  }
  if (images.both_ways || images.has_axes) check_contiguous();
  if (images.has_axes) find_offsets();
}

void SequenceMedia::check_contiguous() const {
  for (size_t picture = 0; picture < spans_.size(); ++picture)
    if (spans_[picture].second - spans_[picture].first > counts_[picture])
      throw Error(Kind::kPrompt, "the prompt has tokens among the " + std::to_string(counts_[picture]) + " placeholders of picture " + std::to_string(picture + 1) + ", expected none", kProcessor);
}

// Positions on three axes (M-RoPE), see runtime/images/offsets.py.
void SequenceMedia::find_offsets() {
  for (std::vector<int64_t>& axis : offsets_) axis.assign(static_cast<size_t>(size_) + 1, 0);
  int64_t behind = 0, begin = 0;
  const auto set = [this](size_t axis, int64_t place, int64_t value) { offsets_[axis][static_cast<size_t>(place)] = value; };
  const auto fill = [&](int64_t stop) {
    for (; begin < stop; ++begin)
      for (size_t axis = 0; axis < 3; ++axis) set(axis, begin, behind);
  };
  for (size_t picture = 0; picture < pictures_.size(); ++picture) {
    const Grid& grid = pictures_[picture]->grid;
    const auto [first, after] = spans_[picture];
    fill(first);
    for (int64_t row = 0; row < after - first; ++row) {
      const int64_t place = first + row, position = first + behind - place;
      set(0, place, position);
      set(1, place, position + row / grid.columns);
      set(2, place, position + row % grid.columns);
    }
    behind += std::max(grid.rows, grid.columns) - grid.rows * grid.columns;
    begin = after;
  }
  fill(size_ + 1);
}

int64_t SequenceMedia::offset(size_t axis, int64_t place) const { return offsets_[axis].empty() ? 0 : offsets_[axis][static_cast<size_t>(std::min(place, size_))]; }

int64_t SequenceMedia::chunk_stop(int64_t start, int64_t stop) const {
  const auto [begin, end] = cut_block(stop);
  return begin > start ? begin : end;
}

// Return begin and end of the rows that see each other on both sides of `stop`, which it is itself without.
std::pair<int64_t, int64_t> SequenceMedia::cut_block(int64_t stop) const {
  if (!encoder_->family().images.both_ways || stop <= 0 || stop >= size_) return {stop, stop};
  const int64_t number = block(stop);
  return !number || block(stop - 1) != number ? std::pair(stop, stop) : spans_[static_cast<size_t>(number - 1)];
}

bool SequenceMedia::has_rows(const Span& part) const {
  for (int64_t place = part.start; place < std::min(part.stop, size_); ++place)
    if (block(place)) return true;
  return false;
}

bool SequenceMedia::prepare(int64_t start, bool waits) {
  for (size_t picture = 0; picture < pictures_.size();) {
    if (encoded_[picture] || spans_[picture].second <= start) {
      ++picture;
      continue;
    }
    if (!ahead_.valid()) {
      ahead_ = encoder_->ahead(pictures_[picture], life_);
      ahead_of_ = picture;
    }
    if (ahead_.wait_for(std::chrono::milliseconds(waits ? kMoment : 0)) != std::future_status::ready) return false;
    keep(ahead_of_, ahead_.get());  // maybe of another picture: some slot may hold more of the prompt than at the last look
  }
  return true;
}

void SequenceMedia::keep(size_t picture, const Encoded& found) {
  encoded_[picture] = found.rows;
  encode_seconds += found.seconds;
  pictures_[picture].reset();
}

const float* SequenceMedia::row(int64_t place) {
  if (place >= size_ || !block(place)) return nullptr;
  const auto picture = static_cast<size_t>(block(place) - 1);
  if (!encoded_[picture]) keep(picture, encoder_->rows(*pictures_[picture]));
  return encoded_[picture]->at(rows_[static_cast<size_t>(place)]);
}

}  // namespace spc::images
