// Families of models: sizes of pictures, the encoder's inputs, and the text that stands for a picture (runtime/images/family.py).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pixels.h"
#include "settings.h"

namespace spc::images {

// Casts with short names, for formulas of sizes that mix whole numbers and real ones.
inline double real(int64_t number) { return static_cast<double>(number); }
inline int64_t whole(double number) { return static_cast<int64_t>(number); }

// Parts of a picture: rows and columns of them, and the whole picture if `whole`. height, width: of the picture, where the number
// of its rows depends on them as well.
struct Grid {
  int64_t rows = 0, columns = 0;
  bool whole = false;
  int64_t height = 0, width = 0;

  int64_t n_tiles() const { return rows * columns + (whole ? 1 : 0); }
};

// An input of the encoder: float32 in `floats`, or int64 in `ints`.
struct EncoderInput {
  const char* name;
  Shape shape;
  std::vector<float> floats;
  std::vector<int64_t> ints;
};

// Inputs of one run of the encoder.
using EncoderRun = std::vector<EncoderInput>;

// Rows of a picture, float32 [count, width].
struct Rows {
  int64_t count = 0, width = 0;
  std::vector<float> values;

  const float* at(int64_t row) const { return values.data() + row * width; }
};

// Preprocessing of the pictures of one family. Never changes: any number of threads may use it.
class Family {
 public:
  explicit Family(const ImageSettings& images) : images(images) {}
  virtual ~Family() = default;

  // Return the parts of a picture of this size. Throws Error(kPrompt) for a shape that the family does not take.
  virtual Grid grid(int64_t height, int64_t width) const = 0;
  virtual int64_t n_rows(const Grid& grid) const = 0;
  // Return the runs of the encoder that give a picture's rows, in their order.
  virtual std::vector<EncoderRun> runs(const Pixels& image) const = 0;
  // Return a picture's rows from what its runs of the encoder gave, which have `run_rows` rows each.
  virtual Rows joined(const std::vector<Rows>& found, const Grid& grid) const;
  // Return the text of a picture in a prompt, with a placeholder for every row.
  virtual std::string text(const Grid& grid) const = 0;
  // Text that stands for a picture where a prompt has none: the placeholder, and what belongs around it.
  virtual std::string alone() const { return token(); }

  const ImageSettings images;

 protected:
  std::string token() const { return images.token.value_or(""); }
  Pixels resized(const Pixels& image, int64_t height, int64_t width) const { return resize(image, height, width, images.resample); }
  // Return the value of a pixel's channel, computed as transformers does: scaled in float64, rounded, normalized.
  virtual float normalized(uint8_t pixel, size_t channel) const;
  // Return the values of all pixels of a channel.
  std::vector<float> table(size_t channel) const;
};

// Return the preprocessing of a manifest's settings; is_low: of pictures with less detail, which become fewer rows. Throws
// Error(kBundle) for wrong settings, Error(kEngine) for a family that this runtime does not have.
std::unique_ptr<const Family> make_family(const ImageSettings& images, bool is_low);

// Families, made by their files. is_low: see `make_family`.
using MakeFamily = std::unique_ptr<const Family> (*)(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_gemma3(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_gemma4(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_idefics3(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_internvl(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_lfm2_vl(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_llava(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_llava_onevision(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_pixtral(const ImageSettings& images, bool is_low);
std::unique_ptr<const Family> make_qwen_vl(const ImageSettings& images, bool is_low);

// Throws Error(kPrompt) for a picture so narrow that it would become a very long one.
void check_shape(int64_t height, int64_t width);
// Return a text several times.
std::string repeated(std::string_view text, int64_t count);

}  // namespace spc::images
