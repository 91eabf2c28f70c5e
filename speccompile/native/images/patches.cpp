#include "patches.h"

#include <algorithm>
#include <cmath>

#include "../contract_table.h"
#include "../errors.h"

namespace spc::images {
namespace {

constexpr int64_t kLowRows = 70;  // least budget of rows of Gemma 4
constexpr int64_t kMostArea = int64_t{1} << 28;

// Return the four entries of a square table of positions around each patch, and their weights, int64 and float32 [patches, 4]. The
// table is stretched over the picture, corner to corner.
std::pair<EncoderInput, EncoderInput> near(const std::vector<int64_t>& places, int64_t rows, int64_t columns, int64_t side) {
  const auto count = static_cast<int64_t>(places.size() / 2);
  EncoderInput entries{kNear, {count, 4}, {}, {}}, weights{kWeights, {count, 4}, {}, {}};
  const int64_t sizes[] = {rows, columns};
  for (size_t patch = 0; patch < places.size(); patch += 2) {
    int64_t taps[2][2];
    float shares[2][2];
    for (size_t axis = 0; axis < 2; ++axis) {
      const float found = static_cast<float>(places[patch + axis]) * static_cast<float>(side - 1) / static_cast<float>(std::max<int64_t>(sizes[axis] - 1, 1));
      const float low = std::floor(found);
      for (int64_t step = 0; step < 2; ++step) {
        taps[axis][step] = std::clamp<int64_t>(static_cast<int64_t>(low) + step, 0, side - 1);
        shares[axis][step] = std::max(1.0f - std::fabs((found - low) - static_cast<float>(step)), 0.0f);
      }
    }
    for (size_t row = 0; row < 2; ++row)
      for (size_t column = 0; column < 2; ++column) {
        entries.ints.push_back(taps[0][row] * side + taps[1][column]);
        weights.floats.push_back(shares[0][row] * shares[1][column]);
      }
  }
  return {std::move(entries), std::move(weights)};
}

// Qwen2.5-VL, Qwen3-VL and Qwen3.5. Both sides become multiples of a block of patches, the area lies between two limits. The encoder
// reads a picture in one run.
class QwenVL : public PatchFamily {
 public:
  QwenVL(const ImageSettings& images, bool is_low)
      : PatchFamily(images), most_(limited(images.number("most", 1, kMostArea), is_low)), least_(limited_least(images.number("least", 1, kMostArea), is_low)),
        frames_(images.number("frames", 1, 8)), window_(images.number("window", 0, 1 << 16)), table_side_(images.number("side", 0, 1 << 12)) {
    images.text("begin");
    images.text("end");
  }

  Grid grid(int64_t height, int64_t width) const override {
    check_shape(height, width);
    const double side = real(side_);
    Grid found{whole(std::nearbyint(real(height) / side)), whole(std::nearbyint(real(width) / side)), false};
    const int64_t area = found.rows * found.columns * side_ * side_;
    if (area > most_) {
      const double shrink = std::sqrt(real(height * width) / real(most_));
      found.rows = std::max<int64_t>(1, whole(std::floor(real(height) / shrink / side)));
      found.columns = std::max<int64_t>(1, whole(std::floor(real(width) / shrink / side)));
    } else if (area < least_) {
      const double grow = std::sqrt(real(least_) / real(height * width));
      found.rows = whole(std::ceil(real(height) * grow / side));
      found.columns = whole(std::ceil(real(width) * grow / side));
    }
    return found;
  }

  std::string text(const Grid& grid) const override { return repeated(token(), grid.n_tiles()); }
  std::string alone() const override { return images.text("begin") + token() + images.text("end"); }

  std::vector<EncoderRun> runs(const Pixels& image) const override {
    std::vector<EncoderRun> found = PatchFamily::runs(image);
    EncoderRun& run = found.front();
    const Grid grid = this->grid(image.height, image.width);
    const std::vector<int64_t> places = run.back().ints;
    const int64_t rows = grid.rows * merge_, columns = grid.columns * merge_;
    if (window_) {
      const int64_t size = merge_ * window_, in_line = (columns - 1) / size + 1;
      EncoderInput windows{kWindows, {static_cast<int64_t>(places.size() / 2)}, {}, {}};
      for (size_t patch = 0; patch < places.size(); patch += 2) windows.ints.push_back(places[patch] / size * in_line + places[patch + 1] / size);
      run.push_back(std::move(windows));
    }
    if (table_side_) {
      auto [entries, weights] = near(places, rows, columns, table_side_);
      run.push_back(std::move(entries));
      run.push_back(std::move(weights));
    }
    return found;
  }

 protected:
  // Patches stand still in time.
  EncoderInput cut(const Pixels& image) const override { return blocks_of(image, false, frames_); }

 private:
  static int64_t limited(int64_t most, bool is_low) { return is_low ? std::min(most, kLowSide * kLowSide) : most; }
  int64_t limited_least(int64_t least, bool is_low) const { return is_low ? std::min(least, most_) : least; }

  const int64_t most_, least_, frames_, window_, table_side_;
};

// Mistral 3 and Pixtral. A picture keeps its shape and is never enlarged beyond whole blocks of patches; a token ends each of its
// lines.
class Pixtral : public PatchFamily {
 public:
  Pixtral(const ImageSettings& images, bool is_low) : PatchFamily(images), most_(images.pair("most", 1 << 14)) {
    if (is_low) most_ = {std::min(most_.first, kLowSide), std::min(most_.second, kLowSide)};
    images.text("break");
    images.text("end");
  }

  Grid grid(int64_t height, int64_t width) const override {
    const double ratio = std::max(real(height) / real(most_.first), real(width) / real(most_.second));
    if (ratio > 1) {
      height = whole(std::floor(real(height) / ratio));
      width = whole(std::floor(real(width) / ratio));
    }
    if (!height || !width)
      throw Error(Kind::kPrompt, "received a picture that is less than a pixel wide in " + std::to_string(most_.second) + " x " + std::to_string(most_.first) +
                                     " pixels, expected one of another shape",
                  "crop the picture");
    return {(height + side_ - 1) / side_, (width + side_ - 1) / side_, false};
  }

  std::string text(const Grid& grid) const override {
    const std::string line = repeated(token(), grid.columns);
    return repeated(line + images.text("break"), grid.rows - 1) + line + images.text("end");
  }

 private:
  std::pair<int64_t, int64_t> most_;
};

// Gemma 4. A picture becomes as large as its budget of rows allows, in its own shape.
class Gemma4 : public PatchFamily {
 public:
  Gemma4(const ImageSettings& images, bool is_low) : PatchFamily(images), places_(images.number("places", 1, 1 << 24)), most_(images.number("most", 1, 1 << 16)) {
    if (is_low) most_ = std::min(most_, kLowRows);
    images.text("begin");
    images.text("end");
  }

  Grid grid(int64_t height, int64_t width) const override {
    const double side = real(side_), factor = std::sqrt(real(most_ * side_ * side_) / real(height * width));
    Grid found{whole(std::floor(factor * real(height) / side)), whole(std::floor(factor * real(width) / side)), false};
    if (!found.rows) {
      found = {1, std::min(whole(std::floor(real(width) / real(height))), most_), false};
    } else if (!found.columns) {
      found = {std::min(whole(std::floor(real(height) / real(width))), most_), 1, false};
    }
    if (const int64_t line = std::max(found.rows, found.columns) * merge_; line > places_)
      throw Error(Kind::kPrompt, "received a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels, which has " + std::to_string(line) +
                                     " patches in a line, expected at most " + std::to_string(places_) + ", for which the encoder has positions",
                  "crop the picture");
    return found;
  }

  std::string text(const Grid& grid) const override { return images.text("begin") + repeated(token(), grid.n_tiles()) + images.text("end"); }

 protected:
  EncoderInput cut(const Pixels& image) const override { return blocks_of(image, true, 1); }

 private:
  const int64_t places_;
  int64_t most_;
};

}  // namespace

PatchFamily::PatchFamily(const ImageSettings& images) : Family(images), patch_(images.number("patch", 1, 256)), merge_(images.number("merge", 1, 16)), side_(patch_ * merge_) {}

std::vector<EncoderRun> PatchFamily::runs(const Pixels& image) const {
  const Grid grid = this->grid(image.height, image.width);
  EncoderRun run;
  run.push_back(cut(resized(image, grid.rows * side_, grid.columns * side_)));
  run.push_back(places_of(grid));
  return {std::move(run)};
}

EncoderInput PatchFamily::blocks_of(const Pixels& image, bool channels_last, int64_t frames) const {
  const int64_t rows = image.height / side_, columns = image.width / side_;
  EncoderInput found{kPixels, {rows * columns * merge_ * merge_, 3 * frames * patch_ * patch_}, {}, {}};
  found.floats.reserve(static_cast<size_t>(product(found.shape)));
  const std::vector<float> tables[] = {table(0), table(1), table(2)};
  for_each_patch(rows, columns, [&](int64_t row, int64_t column) {
    const auto line = [&](int64_t inner) { return image.at(row * patch_ + inner, column * patch_); };
    if (channels_last) {
      for (int64_t inner = 0; inner < patch_; ++inner)
        for (int64_t i = 0; i < patch_ * 3; ++i) found.floats.push_back(tables[i % 3][line(inner)[i]]);
      return;
    }
    for (int64_t channel = 0; channel < 3; ++channel)
      for (int64_t frame = 0; frame < frames; ++frame)
        for (int64_t inner = 0; inner < patch_; ++inner)
          for (int64_t i = 0; i < patch_; ++i) found.floats.push_back(tables[channel][line(inner)[i * 3 + channel]]);
  });
  return found;
}

EncoderInput PatchFamily::places_of(const Grid& grid) const {
  EncoderInput found{kPlaces, {grid.rows * grid.columns * merge_ * merge_, 2}, {}, {}};
  for_each_patch(grid.rows, grid.columns, [&](int64_t row, int64_t column) { found.ints.insert(found.ints.end(), {row, column}); });
  return found;
}

std::unique_ptr<const Family> make_qwen_vl(const ImageSettings& images, bool is_low) { return std::make_unique<QwenVL>(images, is_low); }
std::unique_ptr<const Family> make_pixtral(const ImageSettings& images, bool is_low) { return std::make_unique<Pixtral>(images, is_low); }
std::unique_ptr<const Family> make_gemma4(const ImageSettings& images, bool is_low) { return std::make_unique<Gemma4>(images, is_low); }

}  // namespace spc::images
