// JPEG by libjpeg, which is loaded when the first such file comes.
#include "../contract_table.h"
#include "decode.h"
#include "library.h"
#include "reader.h"

#if defined(SPECCOMPILE_HAS_JPEG)
#include <csetjmp>
#include <cstdio>
#include <cstring>

extern "C" {
#include <jpeglib.h>
#include <jerror.h>
}
#endif

namespace spc::images {

#if defined(SPECCOMPILE_HAS_JPEG)
namespace {

struct Libjpeg {
  static const Libjpeg& get() {
    static const Libjpeg loaded;
    return loaded;
  }

  const std::string name = "libjpeg.so." + std::to_string(JPEG_LIB_VERSION >= 80 ? JPEG_LIB_VERSION / 10 : JPEG_LIB_VERSION);
  const Library library{name.c_str(), "JPEG", "libjpeg62-turbo, or libjpeg8"};
  SPC_FUNCTION(jpeg_std_error);
  SPC_FUNCTION(jpeg_CreateDecompress);
  SPC_FUNCTION(jpeg_destroy_decompress);
  SPC_FUNCTION(jpeg_mem_src);
  SPC_FUNCTION(jpeg_read_header);
  SPC_FUNCTION(jpeg_start_decompress);
  SPC_FUNCTION(jpeg_read_scanlines);
  SPC_FUNCTION(jpeg_finish_decompress);
  SPC_FUNCTION(jpeg_save_markers);
};

constexpr size_t kMessage = JMSG_LENGTH_MAX;

// A decompression, and what ended it. libjpeg jumps out of it, so that no object of C++ may be made meanwhile.
struct Reading {
  jpeg_error_mgr errors;  // the first member: libjpeg knows the address of this alone
  jpeg_progress_mgr progress;
  std::jmp_buf back;
  char problem[kMessage];
  jpeg_decompress_struct info;
};

Reading& reading_of(j_common_ptr info) { return *reinterpret_cast<Reading*>(info->err); }

void fail(j_common_ptr info) {
  info->err->format_message(info, reading_of(info).problem);
  std::longjmp(reading_of(info).back, 1);
}

// A file that ends too early is damaged; other warnings change pixels at most, as in Pillow.
void warn(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) fail(info);
}

void be_silent(j_common_ptr) {}

// End a decompression of too many scans: each may be some bytes, and is a pass over the whole picture.
void check_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) std::longjmp(reading_of(info).back, 1);
}

// Read the header. Return false where libjpeg has found an error.
bool begin(Reading& reading, std::string_view data) {
  const Libjpeg& lib = Libjpeg::get();
  reading.info.err = lib.jpeg_std_error(&reading.errors);
  reading.errors.error_exit = fail;
  reading.errors.emit_message = warn;
  reading.errors.output_message = be_silent;
  if (setjmp(reading.back)) return false;
  lib.jpeg_CreateDecompress(&reading.info, JPEG_LIB_VERSION, sizeof reading.info);
  reading.progress.progress_monitor = check_scans;
  reading.info.progress = &reading.progress;
  lib.jpeg_mem_src(&reading.info, reinterpret_cast<const unsigned char*>(data.data()), static_cast<unsigned long>(data.size()));
  lib.jpeg_save_markers(&reading.info, JPEG_APP0 + 1, 0xFFFF);
  return lib.jpeg_read_header(&reading.info, TRUE) == JPEG_HEADER_OK;
}

bool read_lines(Reading& reading, uint8_t* pixels, size_t line) {
  const Libjpeg& lib = Libjpeg::get();
  if (setjmp(reading.back)) return false;
  reading.info.out_color_space = JCS_RGB;
  lib.jpeg_start_decompress(&reading.info);
  while (reading.info.output_scanline < reading.info.output_height) {
    JSAMPROW row = pixels + reading.info.output_scanline * line;
    lib.jpeg_read_scanlines(&reading.info, &row, 1);
  }
  lib.jpeg_finish_decompress(&reading.info);
  return true;
}

int orientation_in(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  int in_exif = 0, in_xmp = 0;
  for (const jpeg_marker_struct* marker = info.marker_list; marker; marker = marker->next) {
    const std::string_view content(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (!in_exif && content.substr(0, kExif.size()) == kExif) in_exif = orientation_of(content.substr(kExif.size()));
    if (content.substr(0, kXmp.size()) == kXmp) in_xmp = xmp_orientation_of(content);
  }
  return in_exif ? in_exif : in_xmp;
}

}  // namespace

Pixels decode_jpeg(std::string_view data, const std::string& where) {
  struct Close {
    void operator()(Reading* reading) const {
      if (reading->info.mem) Libjpeg::get().jpeg_destroy_decompress(&reading->info);
      delete reading;
    }
  };
  const std::unique_ptr<Reading, Close> reading(new Reading());
  if (!begin(*reading, data)) refuse_damaged(where, reading->problem);
  check_size(reading->info.image_width, reading->info.image_height, where);
  if (reading->info.num_components > 3)
    refuse_damaged(where, "it has " + std::to_string(reading->info.num_components) + " channels (CMYK), expected 1 or 3 in the runtime in C++");
  const int orientation = orientation_in(reading->info);  // the end of reading forgets it
  Pixels found = Pixels::black(reading->info.image_height, reading->info.image_width);
  const bool is_read = read_lines(*reading, found.data.data(), size_t{reading->info.image_width} * 3);
  if (reading->info.input_scan_number > kMostScans)
    throw Error(Kind::kPrompt, where + ": received a JPEG file of more than " + std::to_string(kMostScans) + " scans, expected at most " + std::to_string(kMostScans), "save it again");
  if (!is_read) refuse_damaged(where, reading->problem);
  return turned(std::move(found), orientation);
}

#else

Pixels decode_jpeg(std::string_view, const std::string&) {
  refuse_format("JPEG", "this runtime was compiled without the headers of libjpeg", "compile it where they are (apt install libjpeg-dev)");
}

#endif

}  // namespace spc::images
