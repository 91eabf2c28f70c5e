// A picture, and its resizing with integers, as Pillow or torch does, bit for bit (runtime/images/resize.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace spc::images {

// A picture: RGB, a byte a channel, row by row.
struct Pixels {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> data;

  static Pixels black(int64_t height, int64_t width) { return {height, width, std::vector<uint8_t>(static_cast<size_t>(height * width) * 3)}; }
  const uint8_t* at(int64_t row, int64_t column) const { return data.data() + static_cast<size_t>(row * width + column) * 3; }
  uint8_t* at(int64_t row, int64_t column) { return data.data() + static_cast<size_t>(row * width + column) * 3; }
  // Return the part of this size that begins at a row and a column.
  Pixels part(int64_t top, int64_t left, int64_t part_height, int64_t part_width) const;
};

struct Picture;

// A picture as a caller gives it. is_low: it is read with less detail; known: what the bundle's reader has made of it, so that its
// pixels are hashed once.
struct GivenPicture {
  std::shared_ptr<const Pixels> pixels;
  bool is_low = false;
  std::shared_ptr<const Picture> known = {};
};

// Return whether `resize` has a filter: bilinear, bicubic, lanczos.
bool is_filter(const std::string& name);

// Return the picture in another size. resample: name of a filter. The first pass is always the horizontal one: newer versions of
// Pillow choose by shape, and the order changes the last bit of some pixels. like_torch: as torch's `interpolate(antialias=True)`
// of bytes instead.
Pixels resize(const Pixels& image, int64_t height, int64_t width, const std::string& resample, bool like_torch = false);

}  // namespace spc::images
