// Families whose pictures become tiles of one size, each of which the encoder turns into the same number of rows
// (runtime/images/tiles.py).
#pragma once

#include <vector>

#include "family.h"

namespace spc::images {

class TileFamily : public Family {
 public:
  using Family::Family;
  int64_t n_rows(const Grid& grid) const override { return grid.n_tiles() * images.tile_rows; }
  std::vector<EncoderRun> runs(const Pixels& image) const override;
  // Return the tiles of a picture in the order of their rows.
  virtual std::vector<Pixels> cut(const Pixels& image) const = 0;

 protected:
  // Return the tiles of a picture whose sides are multiples of a tile's.
  std::vector<Pixels> parts(const Pixels& image) const;
  Pixels as_tile(const Pixels& image) const { return resized(image, images.tile_height, images.tile_width); }
  std::string placeholders() const { return repeated(images.row_token ? *images.row_token : token(), images.tile_rows); }
};

// Return the grid (columns, rows) whose shape is nearest to a picture's. Of equally near ones a later one wins while half of it is
// filled. tile: pixels of one.
std::pair<int64_t, int64_t> nearest(int64_t height, int64_t width, const std::vector<std::pair<int64_t, int64_t>>& grids, int64_t tile);

}  // namespace spc::images
