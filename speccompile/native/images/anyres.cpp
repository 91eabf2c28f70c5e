// LLaVA-NeXT and LLaVA-OneVision: the whole picture as a tile, then a grid of tiles whose rows follow it line by line
// (runtime/images/anyres.py).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "../errors.h"
#include "tiles.h"

namespace spc::images {
namespace {

constexpr double kMost = 1.1;  // side of the grid of rows, in units of the largest one that stays as it is

// int(round(number, 7)) of Python, which rounds the decimal digits.
int64_t rounded(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%.7f", number);
  return std::strtoll(text, nullptr, 10);
}

// one // other of Python's floats.
double floor_divided(double one, double other) {
  const double div = (one - std::fmod(one, other)) / other, floor = std::floor(div);
  return div - floor > 0.5 ? floor + 1 : floor;
}

// Cells of a grid of rows, float32 [height, width, size].
struct Cells {
  int64_t height, width, size;
  std::vector<float> values;

  static Cells of(int64_t height, int64_t width, int64_t size) { return {height, width, size, std::vector<float>(static_cast<size_t>(height * width * size))}; }
  float* at(int64_t row, int64_t column) { return values.data() + (row * width + column) * size; }
  const float* at(int64_t row, int64_t column) const { return values.data() + (row * width + column) * size; }
};

// Cells with another size along an axis, 0 for the height: each is between the two nearest, as `torch.nn.functional.interpolate`
// does it.
Cells shrunk(const Cells& cells, size_t axis, int64_t size) {
  const int64_t before = axis ? cells.width : cells.height;
  Cells found = Cells::of(axis ? cells.height : size, axis ? size : cells.width, cells.size);
  const float scale = static_cast<float>(real(before) / real(size));
  for (int64_t row = 0; row < found.height; ++row)
    for (int64_t column = 0; column < found.width; ++column) {
      const float place = std::max(scale * (static_cast<float>(axis ? column : row) + 0.5f) - 0.5f, 0.0f);
      const auto low = static_cast<int64_t>(place), high = std::min(low + 1, before - 1);
      const float part = place - static_cast<float>(low);
      const float* const one = axis ? cells.at(row, low) : cells.at(low, column);
      const float* const other = axis ? cells.at(row, high) : cells.at(high, column);
      for (int64_t i = 0; i < cells.size; ++i) found.at(row, column)[i] = one[i] * (1 - part) + other[i] * part;
    }
  return found;
}

// LLaVA-OneVision ("anyres_max_N"), and LLaVA-NeXT, which shrinks no grid: see LlavaOneVision in Python.
class LlavaOneVision : public TileFamily {
 public:
  LlavaOneVision(const ImageSettings& images, bool is_low)
      : TileFamily(images), most_(images.number("most", 0, 1 << 10)), side_(static_cast<int64_t>(std::sqrt(real(images.tile_rows)))),
        canvases_(images.pairs("canvases", 1 << 14)) {
    if (side_ * side_ != images.tile_rows) refuse_setting("tile_rows", images.tile_rows, "a square number");
    if (is_low) canvases_ = {{images.tile_height, images.tile_width}};
    for (const auto& [high, wide] : canvases_)
      if (high % images.tile_height || wide % images.tile_width) refuse_setting("settings.canvases", Json::List{high, wide}, "multiples of a tile's sides");
  }

  Grid grid(int64_t height, int64_t width) const override {
    const auto [high, wide] = canvas(height, width);
    return {high / images.tile_height, wide / images.tile_width, true, height, width};
  }

  int64_t n_rows(const Grid& grid) const override {
    const Kept kept = this->kept(grid);
    return images.tile_rows + kept.shrunk_height * (kept.shrunk_width + 1);
  }

  std::vector<Pixels> cut(const Pixels& image) const override {
    const auto [high, wide] = canvas(image.height, image.width);
    const double across = real(wide) / real(image.width), down = real(high) / real(image.height);
    const bool is_wide = across < down;
    const int64_t inner_high = is_wide ? std::min(static_cast<int64_t>(std::ceil(real(image.height) * across)), high) : high;
    const int64_t inner_wide = is_wide ? wide : std::min(static_cast<int64_t>(std::ceil(real(image.width) * down)), wide);
    const Pixels inner = resized(image, inner_high, inner_wide);
    Pixels canvas = Pixels::black(high, wide);
    const int64_t top = (high - inner_high) / 2, left = (wide - inner_wide) / 2;
    for (int64_t row = 0; row < inner_high; ++row) std::copy_n(inner.at(row, 0), inner_wide * 3, canvas.at(top + row, left));
    std::vector<Pixels> found = {as_tile(image)};
    for (Pixels& part : parts(canvas)) found.push_back(std::move(part));
    return found;
  }

  // The encoder gives a tile's rows and the row that ends a line.
  Rows joined(const std::vector<Rows>& found, const Grid& grid) const override {
    for (const Rows& each : found)
      if (each.count != images.tile_rows + 1) throw Error(Kind::kEngine, "the encoder of pictures gave " + std::to_string(each.count) + " rows of a tile, expected " +
                                                              std::to_string(images.tile_rows + 1), "build the bundle again");
    const Kept kept = this->kept(grid);
    const int64_t size = found.front().width;
    Cells cells = Cells::of(kept.height, kept.width, size);
    for (int64_t row = 0; row < kept.height; ++row)
      for (int64_t column = 0; column < kept.width; ++column) {
        const int64_t down = kept.top + row, right = kept.left + column;
        const Rows& tile = found[static_cast<size_t>(1 + down / side_ * grid.columns + right / side_)];
        std::copy_n(tile.at(down % side_ * side_ + right % side_), size, cells.at(row, column));
      }
    if (kept.shrunk_height != kept.height || kept.shrunk_width != kept.width) cells = shrunk(shrunk(cells, 0, kept.shrunk_height), 1, kept.shrunk_width);
    Rows all{images.tile_rows, size, {found.front().at(0), found.front().at(images.tile_rows)}};
    const float* const newline = found.front().at(images.tile_rows);
    for (int64_t row = 0; row < cells.height; ++row) {
      all.values.insert(all.values.end(), cells.at(row, 0), cells.at(row, 0) + cells.width * size);
      all.values.insert(all.values.end(), newline, newline + size);
    }
    all.count += cells.height * (cells.width + 1);
    return all;
  }

  std::string text(const Grid& grid) const override { return repeated(token(), n_rows(grid)); }

 private:
  // First row and column of the tiles' grid that show the picture, how many do, and to how many they are shrunk.
  struct Kept {
    int64_t top, left, height, width, shrunk_height, shrunk_width;
  };

  // Return the canvas on which most pixels of a picture are shown, and of several the smallest.
  std::pair<int64_t, int64_t> canvas(int64_t height, int64_t width) const {
    std::pair<int64_t, int64_t> best = canvases_.front();
    int64_t shown = 0;
    double wasted = std::numeric_limits<double>::infinity();
    for (const auto& [high, wide] : canvases_) {
      const double scale = std::min(real(wide) / real(width), real(high) / real(height));
      const int64_t pixels = std::min(static_cast<int64_t>(real(width) * scale) * static_cast<int64_t>(real(height) * scale), width * height);
      const double waste = real(high * wide - pixels);
      if (pixels > shown || (pixels == shown && waste < wasted)) {
        best = {high, wide};
        shown = pixels;
        wasted = waste;
      }
    }
    return best;
  }

  Kept kept(const Grid& grid) const {
    const int64_t high = grid.rows * side_, wide = grid.columns * side_, height = grid.height, width = grid.width;
    int64_t top = 0, left = 0;
    if (real(width) / real(height) > real(wide) / real(high)) {
      top = (high - rounded(real(height) * (real(wide) / real(width)))) / 2;
    } else {
      left = (wide - rounded(real(width) * (real(high) / real(height)))) / 2;
    }
    Kept found{top, left, high - 2 * top, wide - 2 * left, 0, 0};
    const double ratio = most_ ? std::sqrt(real(found.height * found.width) / real(most_ * side_ * side_)) : 0;
    found.shrunk_height = ratio > kMost ? static_cast<int64_t>(floor_divided(real(found.height), ratio)) : found.height;
    found.shrunk_width = ratio > kMost ? static_cast<int64_t>(floor_divided(real(found.width), ratio)) : found.width;
    return found;
  }

  const int64_t most_, side_;
  std::vector<std::pair<int64_t, int64_t>> canvases_;
};

}  // namespace

std::unique_ptr<const Family> make_llava_onevision(const ImageSettings& images, bool is_low) { return std::make_unique<LlavaOneVision>(images, is_low); }

}  // namespace spc::images
