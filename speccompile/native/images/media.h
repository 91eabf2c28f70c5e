// Pictures of one sequence: which rows stand at which places of its prompt, and where its chunks may end
// (runtime/images/media.py).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../runtime/engine.h"
#include "../text/text.h"
#include "encoder.h"

namespace spc::images {

// Pictures in the prompt of one sequence. Each is encoded when a window first needs one of its rows, or ahead of that. Not thread-safe.
class SequenceMedia {
 public:
  // ids: the prompt, with the placeholder for every row. Throws Error(kPrompt) if their number is not that of the rows, or tokens stand
  // among the rows of a picture.
  SequenceMedia(std::vector<PicturePtr> pictures, const TokenIds& ids, std::shared_ptr<Encoder> encoder);

  // The prompt with an id of a picture's content for each of its rows, which is negative: equal for equal pictures alone.
  const TokenIds& identity() const { return identity_; }
  // For each token of the prompt 0, or the number of the picture whose row stands in its place, from 1 on.
  int64_t block(int64_t place) const { return blocks_[static_cast<size_t>(place)]; }
  // Return what to add, on an axis, to the position of a token; those after the prompt have its end's.
  int64_t offset(size_t axis, int64_t place) const;
  // Return the offset, on every axis, of the position of a token behind the prompt.
  int64_t offset_behind() const { return offset(0, size_); }
  // Return where a chunk of the prompt ends that begins at `start` and would end at `stop`: not among rows that see each other, which
  // lie before or in it.
  int64_t chunk_stop(int64_t start, int64_t stop) const;
  // Return how many of the first `length` tokens a sequence may go on from: rows that see each other are cached together or read again.
  int64_t reusable(int64_t length) const { return cut_block(length).first; }
  // Return whether a row of a picture stands among these tokens.
  bool has_rows(const Span& part) const;
  // Return whether the pictures of the prompt from token `start` on are encoded. If not, another thread is encoding one of them now.
  // waits: wait a moment for it, so that the caller need not. Throws Error(kEngine).
  bool prepare(int64_t start, bool waits);
  // Return the row that stands in the place of a token, null for a token. Throws Error(kEngine).
  const float* row(int64_t place);

  double encode_seconds = 0;  // of encoding so far; pictures whose rows are kept take none

 private:
  std::pair<int64_t, int64_t> cut_block(int64_t stop) const;
  void check_contiguous() const;
  void find_offsets();

  // Keep the rows of a picture, whose pixels are not needed any more.
  void keep(size_t picture, const Encoded& found);

  std::vector<PicturePtr> pictures_;  // null for those that are encoded
  const std::shared_ptr<Encoder> encoder_;
  const int64_t size_;
  std::vector<int64_t> starts_, counts_;  // of each picture: its first row, and how many it has
  std::vector<int64_t> rows_, blocks_;  // of each token: the number of its row in its picture, and of the picture from 1 on
  std::vector<int64_t> offsets_[3];     // of each token, and of all that follow
  std::vector<std::pair<int64_t, int64_t>> spans_;  // begin and end of the rows of each picture
  TokenIds identity_;
  std::vector<std::shared_ptr<const Rows>> encoded_;
  std::future<Encoded> ahead_;  // the picture that another thread encodes
  size_t ahead_of_ = 0;         // its number
  const std::shared_ptr<int> life_ = std::make_shared<int>();  // ends with this: nothing waits for a picture any more
};

}  // namespace spc::images
