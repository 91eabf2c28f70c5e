// PNG by libpng, which is loaded when the first such file comes.
#include "../byte_order.h"
#include "decode.h"
#include "library.h"
#include "reader.h"

#if defined(SPECCOMPILE_HAS_PNG)
#include <png.h>

#include <csetjmp>
#include <cstring>
#endif

namespace spc::images {

#if defined(SPECCOMPILE_HAS_PNG)
namespace {

struct Libpng {
  static const Libpng& get() {
    static const Libpng loaded;
    return loaded;
  }

  const Library library{"libpng16.so.16", "PNG", "libpng16-16"};
  SPC_FUNCTION(png_create_read_struct);
  SPC_FUNCTION(png_create_info_struct);
  SPC_FUNCTION(png_destroy_read_struct);
  SPC_FUNCTION(png_set_read_fn);
  SPC_FUNCTION(png_get_io_ptr);
  SPC_FUNCTION(png_get_error_ptr);
  SPC_FUNCTION(png_set_longjmp_fn);
  SPC_FUNCTION(png_longjmp);
  SPC_FUNCTION(png_set_user_limits);
  SPC_FUNCTION(png_set_keep_unknown_chunks);
  SPC_FUNCTION(png_read_info);
  SPC_FUNCTION(png_set_expand);
  SPC_FUNCTION(png_set_strip_16);
  SPC_FUNCTION(png_set_gray_to_rgb);
  SPC_FUNCTION(png_set_add_alpha);
  SPC_FUNCTION(png_set_interlace_handling);
  SPC_FUNCTION(png_read_update_info);
  SPC_FUNCTION(png_read_row);
  SPC_FUNCTION(png_error);
  SPC_FUNCTION(png_get_rowbytes);
};

// State of one decoding that libpng's callbacks see. unread: bytes that libpng has not read yet; problem: message of the error that
// ended it.
struct Reading {
  std::string_view unread;
  char problem[160];
};

void read_bytes(png_structp png, png_bytep to, size_t size) {
  const Libpng& lib = Libpng::get();
  auto& reading = *static_cast<Reading*>(lib.png_get_io_ptr(png));
  if (reading.unread.size() < size) lib.png_error(png, "the file is truncated");
  std::memcpy(to, reading.unread.data(), size);
  reading.unread.remove_prefix(size);
}

void fail(png_structp png, png_const_charp message) {
  const Libpng& lib = Libpng::get();
  auto& reading = *static_cast<Reading*>(lib.png_get_error_ptr(png));
  std::strncpy(reading.problem, message, sizeof reading.problem - 1);
  lib.png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

// Decode into `pixels`, RGBA, of a size that was checked. Return false where libpng has found an error. Errors jump here (setjmp),
// so that this function must have no object with a destructor.
bool read_rgba(Reading& reading, size_t line, size_t height, uint8_t* pixels) {
  const Libpng& lib = Libpng::get();
  png_structp png = lib.png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, fail, ignore);
  png_infop info = png ? lib.png_create_info_struct(png) : nullptr;
  if (!info) {
    std::strncpy(reading.problem, "libpng cannot begin", sizeof reading.problem - 1);
    if (png) lib.png_destroy_read_struct(&png, nullptr, nullptr);
    return false;
  }
  if (setjmp(*lib.png_set_longjmp_fn(png, std::longjmp, sizeof(std::jmp_buf)))) {
    lib.png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  lib.png_set_read_fn(png, &reading, read_bytes);
  lib.png_set_user_limits(png, kLongestSide, kLongestSide);
  // chunks that change no pixel are not read: some kilobytes of text may inflate to gigabytes
  lib.png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  lib.png_read_info(png, info);
  lib.png_set_expand(png);
  lib.png_set_strip_16(png);
  lib.png_set_gray_to_rgb(png);
  lib.png_set_add_alpha(png, 0xFF, PNG_FILLER_AFTER);
  const int passes = lib.png_set_interlace_handling(png);
  lib.png_read_update_info(png, info);
  if (lib.png_get_rowbytes(png, info) != line) lib.png_error(png, "its lines have another size than its header says");
  for (int pass = 0; pass < passes; ++pass)
    for (size_t row = 0; row < height; ++row) lib.png_read_row(png, pixels + row * line, nullptr);
  lib.png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

// Return a channel composited on white, in the integers of Pillow's alpha_composite.
uint8_t on_white(uint32_t value, uint32_t alpha) {
  const uint32_t share = alpha * (255 << 7) / 255, sum = value * share + 255 * ((255 << 7) - share) + (0x80 << 7);
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

constexpr std::string_view kXmp("XML:com.adobe.xmp\0\0", 19);  // text that is not compressed

// Call `take` with type and content of each chunk.
template <class Take>
void for_each_chunk(std::string_view data, const Take& take) {
  for (size_t at = 8; at + 12 <= data.size();) {
    const size_t size = big_endian_32(data, at);
    if (size > data.size() - at - 12) return;
    take(data.substr(at + 4, 4), data.substr(at + 8, size));
    at += size + 12;
  }
}

}  // namespace

Pixels decode_png(std::string_view data, const std::string& where) {
  if (data.size() < 33 || data.substr(12, 4) != "IHDR") refuse_damaged(where, "it has no header");
  const uint32_t width = big_endian_32(data, 16), height = big_endian_32(data, 20);
  check_size(width, height, where);
  int orientation = 0, in_xmp = 0;
  for_each_chunk(data, [&](std::string_view type, std::string_view content) {
    if (type == "eXIf") orientation = orientation_of(content);
    if (type == "iTXt" && content.substr(0, kXmp.size()) == kXmp) in_xmp = xmp_orientation_of(content);
    const uint32_t frames = type == "acTL" && content.size() >= 4 ? big_endian_32(content, 0) : 1;
    if (frames > 1)
      throw Error(Kind::kPrompt, where + ": received an animation of " + std::to_string(frames) + " pictures, expected one picture", "save the picture that you mean");
  });
  Libpng::get();
  const size_t line = size_t{width} * 4;
  std::vector<uint8_t> rgba(line * height);
  Reading reading{data, {}};
  if (!read_rgba(reading, line, height, rgba.data())) refuse_damaged(where, reading.problem);
  Pixels found = Pixels::black(height, width);
  for (size_t pixel = 0; pixel < found.data.size() / 3; ++pixel)
    for (size_t channel = 0; channel < 3; ++channel) found.data[pixel * 3 + channel] = on_white(rgba[pixel * 4 + channel], rgba[pixel * 4 + 3]);
  return turned(std::move(found), orientation ? orientation : in_xmp);
}

#else

Pixels decode_png(std::string_view, const std::string&) {
  refuse_format("PNG", "this runtime was compiled without the headers of libpng", "compile it where they are (apt install libpng-dev)");
}

#endif

}  // namespace spc::images
