// LFM2-VL: a picture in its shape, or, if it is large, tiles of one size and then the whole in its shape (runtime/images/lfm2.py).
#include <algorithm>
#include <cmath>

#include "../contract_table.h"
#include "patches.h"
#include "tiles.h"

namespace spc::images {
namespace {

// Return the weights of a table's entries along one axis for each patch, float32 [patches, side]: bilinear, with as many entries as a
// patch covers. size: number of patches along the axis.
EncoderInput stretched(const char* name, const std::vector<int64_t>& places, size_t axis, int64_t size, int64_t side) {
  EncoderInput found{name, {static_cast<int64_t>(places.size() / 2), side}, {}, {}};
  const float scale = static_cast<float>(side) / static_cast<float>(size), reach = std::max(scale, 1.0f);
  std::vector<float> weights(static_cast<size_t>(side));
  for (size_t patch = axis; patch < places.size(); patch += 2) {
    const float center = (static_cast<float>(places[patch]) + 0.5f) * scale - 0.5f;
    double total = 0;
    for (size_t entry = 0; entry < weights.size(); ++entry) total += weights[entry] = std::max(1.0f - std::fabs(static_cast<float>(entry) - center) / reach, 0.0f);
    for (const float weight : weights) found.floats.push_back(static_cast<float>(static_cast<double>(weight) / total));
  }
  return found;
}

// LFM2-VL. The encoder reads each tile in a run of its own. Pixels are those of torch, not of Pillow: see Lfm2VL in Python.
class Lfm2VL : public PatchFamily {
 public:
  Lfm2VL(const ImageSettings& images, bool is_low)
      : PatchFamily(images), splits_(images.flag("split") && !is_low), has_thumbnail_(images.flag("thumbnail")), table_side_(images.number("side", 1, 1 << 10)),
        least_(images.number("least", 1, 1 << 16) * side_ * side_), most_(images.number("most", 1, 1 << 16) * side_ * side_), large_(images.settings["large"].number()),
        grids_(images.pairs("grids", 1 << 10)) {
    if (!(large_ > 0) || !std::isfinite(large_)) refuse_setting("settings.large", images.settings["large"], "a number above 0");
    if (images.tile_height % side_ || images.tile_width % side_) refuse_setting("tile", Json::List{images.tile_height, images.tile_width}, "multiples of a row's side");
    for (const char* const name : {"begin", "whole", "end"}) images.text(name);
  }

  // height, width: of the whole picture as a tile.
  Grid grid(int64_t height, int64_t width) const override {
    const auto [high, wide] = own_size(height, width);
    if (!splits_ || real(rounded(height, width, patch_)) <= real(most_) * large_) return {0, 0, true, high, wide};
    const auto [columns, rows] = nearest(height, width, grids_, images.tile_height * images.tile_width);
    return {rows, columns, rows * columns == 1 || has_thumbnail_, high, wide};
  }

  int64_t n_rows(const Grid& grid) const override { return tiles_of(grid) * images.tile_rows + (grid.whole ? rows_of(grid) : 0); }

  std::vector<EncoderRun> runs(const Pixels& image) const override {
    const Grid grid = this->grid(image.height, image.width);
    std::vector<EncoderRun> found;
    if (tiles_of(grid)) {
      const Pixels all = torch_resized(image, grid.rows * images.tile_height, grid.columns * images.tile_width);
      for (int64_t top = 0; top < all.height; top += images.tile_height)
        for (int64_t left = 0; left < all.width; left += images.tile_width) found.push_back(run(all.part(top, left, images.tile_height, images.tile_width)));
    }
    if (grid.whole) found.push_back(run(torch_resized(image, grid.height, grid.width)));
    return found;
  }

  std::string text(const Grid& grid) const override {
    std::string found = images.text("begin");
    const bool has_tiles = tiles_of(grid) > 0;
    for (int64_t row = 1; has_tiles && row <= grid.rows; ++row)
      for (int64_t column = 1; column <= grid.columns; ++column)
        found += "<|img_row_" + std::to_string(row) + "_col_" + std::to_string(column) + "|>" + repeated(token(), images.tile_rows);
    if (grid.whole) found += (has_tiles ? images.text("whole") : "") + repeated(token(), rows_of(grid));
    return found + images.text("end");
  }

 protected:
  float normalized(uint8_t pixel, size_t channel) const override {
    const auto scale = static_cast<float>(1.0 / images.rescale);
    return (static_cast<float>(pixel) - images.mean[channel] * scale) / (images.std[channel] * scale);
  }

 private:
  EncoderRun run(const Pixels& tile) const {
    EncoderRun made;
    made.push_back(blocks_of(tile, true, 1));
    made.push_back(places_of({tile.height / side_, tile.width / side_, false}));
    const std::vector<int64_t> places = made.back().ints;
    made.push_back(stretched(kRowWeights, places, 0, tile.height / patch_, table_side_));
    made.push_back(stretched(kColumnWeights, places, 1, tile.width / patch_, table_side_));
    return made;
  }

  Pixels torch_resized(const Pixels& image, int64_t height, int64_t width) const { return resize(image, height, width, images.resample, true); }
  // Number of tiles besides the whole picture: a grid of one has none.
  static int64_t tiles_of(const Grid& grid) { return grid.rows * grid.columns > 1 ? grid.rows * grid.columns : 0; }
  int64_t rows_of(const Grid& grid) const { return grid.height * grid.width / (side_ * side_); }
  int64_t nearest_side(int64_t length, int64_t least) const { return std::max(least, whole(std::nearbyint(real(length) / real(side_))) * side_); }
  // Pixels of a picture whose sides are the nearest multiples of a row's.
  int64_t rounded(int64_t height, int64_t width, int64_t least) const { return nearest_side(height, least) * nearest_side(width, least); }

  // Sides of the whole picture: multiples of a row's, in number between two limits.
  std::pair<int64_t, int64_t> own_size(int64_t height, int64_t width) const {
    const int64_t area = rounded(height, width, side_);
    if (area > most_) {
      const double shrink = std::sqrt(real(height * width) / real(most_));
      const auto side = [&](int64_t length) { return std::max(side_, whole(std::floor(real(length) / shrink / real(side_))) * side_); };
      return {side(height), side(width)};
    }
    if (area < least_) {
      const double grow = std::sqrt(real(least_) / real(height * width));
      const auto side = [&](int64_t length) { return whole(std::ceil(real(length) * grow / real(side_))) * side_; };
      return {side(height), side(width)};
    }
    return {nearest_side(height, side_), nearest_side(width, side_)};
  }

  const bool splits_, has_thumbnail_;
  const int64_t table_side_, least_, most_;  // least_, most_: pixels of a picture that stays whole
  const double large_;
  const std::vector<std::pair<int64_t, int64_t>> grids_;  // columns and rows
};

}  // namespace

std::unique_ptr<const Family> make_lfm2_vl(const ImageSettings& images, bool is_low) { return std::make_unique<Lfm2VL>(images, is_low); }

}  // namespace spc::images
