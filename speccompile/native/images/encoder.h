// The encoder of a bundle: pictures -> rows, kept by content for pictures that come again (runtime/images/encoder.py).
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "family.h"

namespace spc::images {

// A picture of a prompt. key: hash of its pixels and its detail; grid: its parts; is_low: it has less detail.
struct Picture {
  std::shared_ptr<const Pixels> image;
  std::string key;
  Grid grid;
  bool is_low = false;
};
using PicturePtr = std::shared_ptr<const Picture>;

// Runs the encoder's graph once.
using RunEncoder = std::function<Rows(const EncoderRun& given)>;

// Rows of pictures. Thread-safe; the graph is opened at the first picture.
class Encoder {
 public:
  // open: opens the graph; limit: bytes of rows that are kept.
  Encoder(const ImageSettings& images, std::function<RunEncoder()> open, size_t limit);

  const Family& family(bool is_low = false) const { return *(is_low ? low_ : whole_); }
  // Return the picture of these pixels. Throws Error(kPrompt) for a shape that the family does not take.
  PicturePtr picture(std::shared_ptr<const Pixels> image, bool is_low) const;
  // Return the rows of a picture, kept ones if its pixels came before. Throws Error(kEngine).
  std::shared_ptr<const Rows> rows(const Picture& picture);

 private:
  using Kept = std::pair<std::string, std::shared_ptr<const Rows>>;

  Rows encode(const Picture& picture);
  void keep(const std::string& key, const std::shared_ptr<const Rows>& rows);

  const std::unique_ptr<const Family> whole_, low_;
  const std::function<RunEncoder()> open_;
  const size_t limit_;
  std::mutex mutex_;
  RunEncoder run_;
  std::list<Kept> kept_;  // the one that was asked for last first
  size_t size_ = 0;
};

}  // namespace spc::images
