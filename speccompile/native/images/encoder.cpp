#include "encoder.h"

#include <algorithm>
#include <cstring>

#include "../bundle/blake3.h"
#include "../errors.h"
#include "../system.h"

namespace spc::images {
namespace {

size_t bytes_of(const Rows& rows) { return rows.values.size() * sizeof(float); }

}  // namespace

Encoder::Encoder(const ImageSettings& images, std::function<RunEncoder()> open, size_t limit)
    : whole_(make_family(images, false)), low_(make_family(images, true)), open_(std::move(open)), limit_(limit) {}

PicturePtr Encoder::picture(std::shared_ptr<const Pixels> image, bool is_low) const {
  const int64_t shape[] = {image->height, image->width, 3, is_low};
  std::string hashed(reinterpret_cast<const char*>(shape), sizeof shape);
  hashed.append(reinterpret_cast<const char*>(image->data.data()), image->data.size());
  const Digest digest = blake3(hashed);
  const Grid grid = family(is_low).grid(image->height, image->width);
  return std::make_shared<const Picture>(Picture{std::move(image), std::string(digest.begin(), digest.end()), grid, is_low});
}

Encoder::~Encoder() {
  {
    const std::lock_guard<std::mutex> held(queue_mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::future<Encoded> Encoder::ahead(PicturePtr picture, std::weak_ptr<const void> wanted) {
  Task task{std::move(wanted), std::packaged_task<Encoded()>([this, picture = std::move(picture)] { return rows(*picture); })};
  std::future<Encoded> found = task.run.get_future();
  {
    const std::lock_guard<std::mutex> held(queue_mutex_);
    queue_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { run_all(); });
  }
  changed_.notify_all();
  return found;
}

void Encoder::run_all() {
  std::unique_lock<std::mutex> held(queue_mutex_);
  while (true) {
    changed_.wait(held, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    held.unlock();
    if (!task.wanted.expired()) task.run();
    held.lock();
  }
}

Encoded Encoder::rows(const Picture& picture) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++queries_;
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.first == picture.key; });
  if (known != kept_.end()) {
    ++hits_;
    kept_.splice(kept_.begin(), kept_, known);
    return {kept_.front().second, 0};
  }
  const double start = wall_seconds();
  auto found = std::make_shared<const Rows>(encode(picture));
  keep(picture.key, found);
  return {std::move(found), wall_seconds() - start};
}

Rows Encoder::encode(const Picture& picture) {
  if (!run_) run_ = open_();
  const Family& own = family(picture.is_low);
  std::vector<Rows> found;
  for (const EncoderRun& given : own.runs(*picture.image)) {
    found.push_back(run_(given));
    if (found.back().width != own.images.width)
      throw Error(Kind::kEngine, "the encoder of pictures gave rows of " + std::to_string(found.back().width) + " numbers, expected " + std::to_string(own.images.width),
                  "build the bundle again");
  }
  Rows rows = own.joined(found, picture.grid);
  if (const int64_t wanted = own.n_rows(picture.grid); rows.count != wanted)
    throw Error(Kind::kEngine, "the encoder of pictures gave " + std::to_string(rows.count) + " rows of a picture, expected " + std::to_string(wanted), "build the bundle again");
  return rows;
}

void Encoder::keep(const std::string& key, const std::shared_ptr<const Rows>& rows) {
  if (bytes_of(*rows) > limit_) return;
  kept_.emplace_front(key, rows);
  size_ += bytes_of(*rows);
  while (size_ > limit_) {
    size_ -= bytes_of(*kept_.back().second);
    kept_.pop_back();
  }
}

}  // namespace spc::images
