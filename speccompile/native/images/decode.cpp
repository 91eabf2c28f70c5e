#include "decode.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "../errors.h"
#include "../files.h"
#include "../words.h"
#include "reader.h"

namespace spc::images {
namespace {

constexpr const char* kFormats = "give a whole file in one of the formats PNG, JPEG, PPM, or convert it to one";

// Return whether a file is a video (runtime/images/decode.py): MP4 and QuickTime, but for pictures in their container, Matroska, or AVI.
bool is_video(std::string_view data) {
  constexpr std::string_view kStill[] = {"avif", "avis", "heic", "heim", "heis", "heix", "hevc", "hevx", "mif1", "msf1"};
  const auto part = [data](size_t at) { return data.size() >= at + 4 ? data.substr(at, 4) : std::string_view(); };
  if (part(4) == "ftyp") return std::find(std::begin(kStill), std::end(kStill), part(8)) == std::end(kStill);
  return part(0) == "\x1a\x45\xdf\xa3" || (part(0) == "RIFF" && part(8) == "AVI ");
}

// Return the next number of a PPM header, after blanks and comments.
int64_t next_number(std::string_view data, size_t& at, const std::string& where) {
  const auto is_blank = [](char each) { return each == ' ' || (each >= '\t' && each <= '\r'); };
  while (at < data.size() && (is_blank(data[at]) || data[at] == '#')) {
    if (data[at] == '#') at = std::min(data.find_first_of("\r\n", at), data.size() - 1);
    ++at;
  }
  int64_t found = 0;
  const size_t begin = at;
  for (; at < data.size() && data[at] >= '0' && data[at] <= '9' && at - begin < 10; ++at) found = 10 * found + (data[at] - '0');
  if (at == begin || at >= data.size() || !is_blank(data[at])) refuse_damaged(where, "its header has no number at byte " + std::to_string(begin));
  return found;
}

}  // namespace

void refuse_damaged(const std::string& where, const std::string& problem) {
  throw Error(Kind::kPrompt, where + ": the picture cannot be decoded: " + problem, kFormats);
}

Pixels decode_pnm(std::string_view data, const std::string& where) {
  size_t at = 2;
  const int64_t width = next_number(data, at, where), height = next_number(data, at, where), most = next_number(data, at, where);
  check_size(static_cast<uint64_t>(width), static_cast<uint64_t>(height), where);
  if (most < 1 || most > 0xFFFF) refuse_damaged(where, "its largest value is " + std::to_string(most) + ", expected 1 to 65535");
  ++at;
  const bool is_grey = data[1] == '5';
  const size_t bytes = most > 255 ? 2 : 1, values = static_cast<size_t>(width * height) * (is_grey ? 1 : 3);
  if (data.size() - at < values * bytes)
    refuse_damaged(where, "it has " + std::to_string(data.size() - at) + " bytes of pixels, expected " + std::to_string(values * bytes));
  // Scale as Pillow does: grey values of two bytes to 16 bits, of which the upper 8 remain, all others to 8.
  const bool is_cut = is_grey && bytes == 2;
  std::vector<uint8_t> table(static_cast<size_t>(most) + 1);
  for (size_t value = 0; value < table.size(); ++value) {
    const auto scaled = static_cast<int64_t>(std::nearbyint(static_cast<double>(value) / static_cast<double>(most) * (is_cut ? 65535 : 255)));
    table[value] = static_cast<uint8_t>(is_cut ? scaled >> 8 : scaled);
  }
  Pixels found = Pixels::black(height, width);
  const auto* from = reinterpret_cast<const uint8_t*>(data.data()) + at;
  for (size_t i = 0; i < values; ++i, from += bytes) {
    const auto value = static_cast<size_t>(bytes == 2 ? from[0] << 8 | from[1] : from[0]);
    const uint8_t pixel = table[std::min(value, table.size() - 1)];
    if (is_grey)
      std::fill_n(found.data.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, pixel);
    else
      found.data[i] = pixel;
  }
  return found;
}

std::shared_ptr<const Pixels> decode(std::string_view data, const std::string& where) {
  if (data.size() > static_cast<size_t>(kMostPictureBytes))
    throw Error(Kind::kPrompt, where + ": received " + std::to_string(data.size()) + " bytes, expected at most " + std::to_string(kMostPictureBytes), "give a smaller picture");
  if (data.empty()) throw Error(Kind::kPrompt, where + ": received an empty file, expected a picture", kFormats);
  if (is_video(data)) throw Error(Kind::kPrompt, where + ": received a video, expected one picture", "save the pictures that you mean");
  if (starts_with(data, "P6") || starts_with(data, "P5")) return std::make_shared<const Pixels>(decode_pnm(data, where));
  if (starts_with(data, "\x89PNG\r\n\x1a\n")) return std::make_shared<const Pixels>(decode_png(data, where));
  if (starts_with(data, "\xFF\xD8\xFF")) return std::make_shared<const Pixels>(decode_jpeg(data, where));
  refuse_damaged(where, "it is none of PNG, JPEG and PPM (P6, P5), which the runtime in C++ has");
}

std::shared_ptr<const Pixels> read_picture(const std::string& path, const std::string& where) {
  const std::string name = where + " " + path;
  std::string data;
  try {
    data = read_file(path, static_cast<size_t>(kMostPictureBytes));
  } catch (const FileError& error) {
    throw Error(Kind::kPrompt, name + ": " + error.reason, "give a file that can be read");
  }
  return decode(data, name);
}

int orientation_of(std::string_view exif) {
  constexpr size_t kTiff = 42, kShort = 3, kLong = 4;
  const bool is_little = starts_with(exif, "II");
  if (!is_little && !starts_with(exif, "MM")) return 0;
  const auto number = [&](size_t at, size_t bytes) -> size_t {
    size_t found = 0;
    if (at > exif.size() || exif.size() - at < bytes) return 0;
    for (size_t i = 0; i < bytes; ++i) found = found << 8 | static_cast<uint8_t>(exif[at + (is_little ? bytes - 1 - i : i)]);
    return found;
  };
  if (number(2, 2) != kTiff) return 0;
  const size_t directory = number(4, 4), count = number(directory, 2);
  for (size_t entry = 0; entry < count && directory + 2 + 12 * entry < exif.size(); ++entry) {
    const size_t at = directory + 2 + 12 * entry, kind = number(at + 2, 2);
    if (number(at, 2) != 0x0112) continue;
    const size_t found = kind == kShort ? number(at + 8, 2) : kind == kLong ? number(at + 8, 4) : 1;
    return found >= 1 && found <= 8 ? static_cast<int>(found) : 1;
  }
  return 0;
}

int xmp_orientation_of(std::string_view packet) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = packet.find(kName); at != std::string_view::npos; at = packet.find(kName, at + 1)) {
    std::string_view value = packet.substr(at + kName.size(), 3);
    if (starts_with(value, "=\""))
      value.remove_prefix(2);
    else if (starts_with(value, ">"))
      value.remove_prefix(1);
    else
      continue;
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value[0] - '0';
  }
  return 0;
}

Pixels turned(Pixels image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool is_swapped = orientation >= 5;
  const int64_t height = is_swapped ? image.width : image.height, width = is_swapped ? image.height : image.width;
  Pixels found = Pixels::black(height, width);
  for (int64_t row = 0; row < height; ++row)
    for (int64_t column = 0; column < width; ++column) {
      // the stored picture's pixel for each pixel of the shown one
      const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
      const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
      const int64_t down = is_swapped ? column : row, right = is_swapped ? row : column;
      std::copy_n(image.at(from_below ? image.height - 1 - down : down, from_right ? image.width - 1 - right : right), 3, found.at(row, column));
    }
  return found;
}

}  // namespace spc::images
