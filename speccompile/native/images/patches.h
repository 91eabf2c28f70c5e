// Families whose pictures keep their shape: patches of a picture of any size, merged in blocks to rows
// (runtime/images/patches.py).
#pragma once

#include <vector>

#include "family.h"

namespace spc::images {

// Pictures as patches, `merge` x `merge` of which make a row.
class PatchFamily : public Family {
 public:
  explicit PatchFamily(const ImageSettings& images);
  int64_t n_rows(const Grid& grid) const override { return grid.n_tiles(); }
  // Return one run over all patches, block by block, with the place of each in the picture.
  std::vector<EncoderRun> runs(const Pixels& image) const override;

 protected:
  // Return the patches of a picture as the tower reads them.
  virtual EncoderInput cut(const Pixels& image) const { return blocks_of(image, false, 1); }
  // Return the normalized patches of a picture, float32 [patches, 3 * frames * patch * patch]. channels_last: their pixels one after
  // the other, else their channels, each `frames` times.
  EncoderInput blocks_of(const Pixels& image, bool channels_last, int64_t frames) const;
  // Return row and column of each patch, int64 [patches, 2], block by block.
  EncoderInput places_of(const Grid& grid) const;

  const int64_t patch_, merge_, side_;

 private:
  // Call `take` with row and column of each patch, block by block.
  template <class Take>
  void for_each_patch(int64_t rows, int64_t columns, const Take& take) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t inner_row = 0; inner_row < merge_; ++inner_row)
          for (int64_t inner_column = 0; inner_column < merge_; ++inner_column) take(row * merge_ + inner_row, column * merge_ + inner_column);
  }
};

}  // namespace spc::images
