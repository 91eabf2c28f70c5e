#include "tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../contract_table.h"

namespace spc::images {
namespace {

constexpr int64_t kMostTiles = 1024;

int64_t cut_off(double number) { return static_cast<int64_t>(number); }
int64_t multiple(double number, int64_t side) { return static_cast<int64_t>(std::ceil(number / real(side))) * side; }

// Idefics3 and SmolVLM. The longest side becomes `longest_edge`, both sides multiples of a tile's, and after the parts comes the
// whole picture as a tile.
class Idefics3 : public TileFamily {
 public:
  Idefics3(const ImageSettings& images, bool is_low)
      : TileFamily(images), splits_(images.flag("split") && !is_low), longest_(images.number("longest_edge", 1, 1 << 14)), side_(images.tile_height) {
    images.text("around");
    images.text("whole");
  }

  Grid grid(int64_t height, int64_t width) const override {
    if (!splits_) return {0, 0, true};
    const auto [first_high, first_wide] = first_size(height, width);
    const auto [high, wide] = padded(first_high, first_wide);
    return std::max(high, wide) > side_ ? Grid{high / side_, wide / side_, true} : Grid{0, 0, true};
  }

  std::vector<Pixels> cut(const Pixels& given) const override {
    const auto [first_high, first_wide] = first_size(given.height, given.width);
    const Pixels first = resized(given, first_high, first_wide);
    if (!splits_) return {as_tile(first)};
    const auto [high, wide] = padded(first_high, first_wide);
    const Pixels image = resized(first, high, wide);
    std::vector<Pixels> found = parts(image);
    if (found.size() > 1) found.push_back(as_tile(image));
    return found;
  }

  std::string text(const Grid& grid) const override {
    const std::string &around = images.text("around"), end = around + images.text("whole") + placeholders() + around;
    if (!grid.rows) return end;
    std::string found;
    for (int64_t row = 1; row <= grid.rows; ++row) {
      for (int64_t column = 1; column <= grid.columns; ++column)
        found += around + "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">" + placeholders();
      found += "\n";
    }
    return found + "\n" + end;
  }

 private:
  static constexpr int64_t kMost = 4096;  // longest side in any case

  std::pair<int64_t, int64_t> first_size(int64_t height, int64_t width) const {
    double ratio = real(width) / real(height);
    if (width >= height) {
      width = longest_;
      height = cut_off(real(longest_) / ratio);
      height += height % 2;
    } else {
      height = longest_;
      width = cut_off(real(longest_) * ratio);
      width += width % 2;
    }
    height = std::max<int64_t>(height, 1);
    width = std::max<int64_t>(width, 1);
    ratio = real(width) / real(height);
    if (width >= height && width > kMost) {
      width = kMost;
      height = cut_off(real(kMost) / ratio);
    } else if (height > kMost) {
      height = kMost;
      width = cut_off(real(kMost) * ratio);
    }
    return {std::max<int64_t>(height, 1), std::max<int64_t>(width, 1)};
  }

  std::pair<int64_t, int64_t> padded(int64_t height, int64_t width) const {
    const double ratio = real(width) / real(height);
    if (width >= height) {
      width = multiple(real(width), side_);
      return {multiple(real(cut_off(real(width) / ratio)), side_), width};
    }
    height = multiple(real(height), side_);
    return {height, multiple(real(cut_off(real(height) * ratio)), side_)};
  }

  const bool splits_;
  const int64_t longest_, side_;
};

// InternVL. The picture becomes the grid of tiles whose shape is nearest to its own, then comes the whole picture as a tile if there
// are several.
class InternVL : public TileFamily {
 public:
  InternVL(const ImageSettings& images, bool is_low) : TileFamily(images) {
    const int64_t least = is_low ? 1 : images.number("least", 0, kMostTiles), most = is_low ? 1 : images.number("most", 1, kMostTiles);
    images.text("begin");
    images.text("end");
    if (most == 1) return;
    for (int64_t columns = 1; columns <= most; ++columns)
      for (int64_t rows = 1; rows <= most; ++rows)
        if (least <= columns * rows && columns * rows <= most) grids_.emplace_back(columns, rows);
    std::stable_sort(grids_.begin(), grids_.end(), [](const auto& one, const auto& other) { return one.first * one.second < other.first * other.second; });
  }

  Grid grid(int64_t height, int64_t width) const override {
    const auto [columns, rows] = nearest(height, width, grids_, images.tile_height * images.tile_width);
    return {rows, columns, rows * columns > 1};
  }

  std::vector<Pixels> cut(const Pixels& image) const override {
    const Grid grid = this->grid(image.height, image.width);
    std::vector<Pixels> found = parts(resized(image, grid.rows * images.tile_height, grid.columns * images.tile_width));
    if (grid.whole) found.push_back(as_tile(image));
    return found;
  }

  std::string text(const Grid& grid) const override { return images.text("begin") + repeated(placeholders(), grid.n_tiles()) + images.text("end"); }

 private:
  std::vector<std::pair<int64_t, int64_t>> grids_;  // columns and rows
};

// LLaVA 1.5 and models like it: a picture of any shape becomes one tile, its middle where the shortest side is that of a tile.
class Llava : public TileFamily {
 public:
  Llava(const ImageSettings& images, bool) : TileFamily(images), shortest_(images.number("shortest", 0, 1 << 12)) {
    if (shortest_ && shortest_ < std::max(images.tile_height, images.tile_width)) refuse_setting("settings.shortest", shortest_, "0, or at least a tile's side");
  }

  Grid grid(int64_t height, int64_t width) const override {
    if (shortest_) check_shape(height, width);
    return {1, 1, false};
  }

  std::vector<Pixels> cut(const Pixels& given) const override {
    if (!shortest_) return {as_tile(given)};
    const int64_t most = std::max(given.height, given.width), least = std::min(given.height, given.width);
    const int64_t longest = cut_off(real(shortest_ * most) / real(least));
    const bool is_tall = given.width <= given.height;
    const Pixels image = resized(given, is_tall ? longest : shortest_, is_tall ? shortest_ : longest);
    return {image.part((image.height - images.tile_height) / 2, (image.width - images.tile_width) / 2, images.tile_height, images.tile_width)};
  }

  std::string text(const Grid&) const override { return placeholders(); }

 private:
  const int64_t shortest_;  // 0: all of a picture becomes the tile
};

// Gemma 3: a picture of any shape becomes one square tile.
class Gemma3 : public TileFamily {
 public:
  Gemma3(const ImageSettings& images, bool) : TileFamily(images) { images.text("end"); }
  Grid grid(int64_t, int64_t) const override { return {1, 1, false}; }
  std::vector<Pixels> cut(const Pixels& image) const override { return {as_tile(image)}; }
  std::string text(const Grid&) const override { return "\n\n" + token() + placeholders() + images.text("end") + "\n\n"; }
};

}  // namespace

std::vector<EncoderRun> TileFamily::runs(const Pixels& image) const {
  std::vector<EncoderRun> found;
  const std::vector<float> tables[] = {table(0), table(1), table(2)};
  for (const Pixels& tile : cut(image)) {
    EncoderInput pixels{kPixels, {3, tile.height, tile.width}, {}, {}};
    const size_t size = tile.data.size() / 3;
    pixels.floats.resize(tile.data.size());
    for (size_t channel = 0; channel < 3; ++channel)
      for (size_t place = 0; place < size; ++place) pixels.floats[channel * size + place] = tables[channel][tile.data[place * 3 + channel]];
    found.push_back({std::move(pixels)});
  }
  return found;
}

std::vector<Pixels> TileFamily::parts(const Pixels& image) const {
  std::vector<Pixels> found;
  for (int64_t top = 0; top < image.height; top += images.tile_height)
    for (int64_t left = 0; left < image.width; left += images.tile_width) found.push_back(image.part(top, left, images.tile_height, images.tile_width));
  return found;
}

std::pair<int64_t, int64_t> nearest(int64_t height, int64_t width, const std::vector<std::pair<int64_t, int64_t>>& grids, int64_t tile) {
  const double ratio = real(width) / real(height);
  std::pair<int64_t, int64_t> best = {1, 1};
  double distance = std::numeric_limits<double>::infinity();
  for (const auto& [columns, rows] : grids) {
    const double away = std::fabs(ratio - real(columns) / real(rows));
    if (away < distance || (away == distance && real(width * height) > 0.5 * real(tile) * real(columns) * real(rows))) {
      best = {columns, rows};
      distance = away;
    }
  }
  return best;
}

std::unique_ptr<const Family> make_idefics3(const ImageSettings& images, bool is_low) {
  if (images.tile_height != images.tile_width) refuse_setting("tile", Json::List{images.tile_height, images.tile_width}, "a square");
  return std::make_unique<Idefics3>(images, is_low);
}
std::unique_ptr<const Family> make_internvl(const ImageSettings& images, bool is_low) { return std::make_unique<InternVL>(images, is_low); }
std::unique_ptr<const Family> make_llava(const ImageSettings& images, bool is_low) { return std::make_unique<Llava>(images, is_low); }
std::unique_ptr<const Family> make_gemma3(const ImageSettings& images, bool is_low) { return std::make_unique<Gemma3>(images, is_low); }

}  // namespace spc::images
