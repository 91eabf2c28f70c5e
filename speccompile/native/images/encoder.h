// The encoder of a bundle: pictures -> rows, kept by content for pictures that come again (runtime/images/encoder.py).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

// Rows of a picture, and the seconds that their encoding took; kept ones take none.
struct Encoded {
  std::shared_ptr<const Rows> rows;
  double seconds = 0;
};

// Counts of pictures that were asked for and of those whose rows were kept, and bytes that are kept now.
struct EncoderUse {
  int64_t queries = 0, hits = 0, kept_bytes = 0;
};

// Rows of pictures. Thread-safe; the graph is opened at the first picture.
class Encoder {
 public:
  // open: opens the graph; limit: bytes of rows that are kept.
  Encoder(const ImageSettings& images, std::function<RunEncoder()> open, size_t limit);

  const Family& family(bool is_low = false) const { return *(is_low ? low_ : whole_); }
  // Return the picture of these pixels. Throws Error(kPrompt) for a shape that the family does not take.
  PicturePtr picture(std::shared_ptr<const Pixels> image, bool is_low) const;
  // Return the rows of a picture, kept ones if its pixels came before. Throws Error(kEngine).
  Encoded rows(const Picture& picture);
  // Return it at any time: this waits for no encoding.
  EncoderUse use() const { return {queries_, hits_, static_cast<int64_t>(size_)}; }
  // The same on a thread of the encoder's own, which encodes one picture after the other beside the caller's work. A picture whose
  // `wanted` has ended when its turn comes is left out.
  std::future<Encoded> ahead(PicturePtr picture, std::weak_ptr<const void> wanted);
  ~Encoder();

 private:
  struct Task {
    std::weak_ptr<const void> wanted;
    std::packaged_task<Encoded()> run;
  };

  void run_all();
  using Kept = std::pair<std::string, std::shared_ptr<const Rows>>;

  Rows encode(const Picture& picture);
  void keep(const std::string& key, const std::shared_ptr<const Rows>& rows);

  const std::unique_ptr<const Family> whole_, low_;
  const std::function<RunEncoder()> open_;
  const size_t limit_;
  std::mutex mutex_;
  RunEncoder run_;
  std::list<Kept> kept_;  // the one that was asked for last first
  std::atomic<size_t> size_ = 0;
  std::atomic<int64_t> queries_ = 0, hits_ = 0;

  std::mutex queue_mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool closing_ = false;
  std::thread thread_;  // begins with the first picture that is encoded ahead
};

}  // namespace spc::images
